/* gin.c: placeholder until its members are streamed */
#include "postgres.h"

#include "maintain/maintain.h"

void
gin_overlay(IndexAmRoutine *routine)
{
}
