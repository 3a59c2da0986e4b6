/* bloom.c: placeholder until its members are streamed */
#include "postgres.h"

#include "maintain/maintain.h"

void
bloom_overlay(IndexAmRoutine *routine)
{
}
