/*-------------------------------------------------------------------------
 *
 * refusal.c
 *		Why look-ahead leaves something to the server, or read nothing ahead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "observe/refusal.h"

#define REFUSAL_SENTENCE(name, sentence) [REFUSED_##name] = sentence,

static const char *const sentences[] = {REFUSALS(REFUSAL_SENTENCE)};

const char *
RefusalSentence(Refusal refusal)
{
	return sentences[refusal];
}
