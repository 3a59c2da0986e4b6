/* hash.c: placeholder until its members are streamed */
#include "postgres.h"

#include "maintain/maintain.h"

void
hash_overlay(IndexAmRoutine *routine)
{
}
