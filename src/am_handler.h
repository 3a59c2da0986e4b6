/*-------------------------------------------------------------------------
 *
 * am_handler.h
 *		Which C function is the handler of an access method?
 *
 * Anyone who may create access methods and functions chooses their names, so
 * a handler written in C is known by what it runs: the function's name in C,
 * and the library that it is in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_AM_HANDLER_H
#define PG_LOOKAHEAD_AM_HANDLER_H

/*
 * Does a function run a certain function of a certain library?
 *		function	of pg_proc; false if there is none
 *		symbol		its name in C
 *		library		file name of the library, without directory and suffix
 */
extern bool AmHandlerIs(Oid function, const char *symbol, const char *library);

#endif							/* PG_LOOKAHEAD_AM_HANDLER_H */
