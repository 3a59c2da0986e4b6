/*-------------------------------------------------------------------------
 *
 * version.h
 *		Which version of the library this is, and which servers it may run in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_VERSION_H
#define PG_LOOKAHEAD_VERSION_H

/*
 * Raise an error if the server is of an older minor version than the headers
 * that the library was built with.
 */
extern void VersionCheckServer(void);

#endif							/* PG_LOOKAHEAD_VERSION_H */
