/*-------------------------------------------------------------------------
 *
 * maintain.h
 *		Index maintenance through streams: the room's face.
 *
 * Each access method has a file of its own here.  Such a file replaces
 * members of a copy of the stock handler's routine, and overlay.c makes the
 * server use that copy.  A replaced member does what the stock one does, page
 * by page and in the same order, with the same locks; only the reads differ.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_MAINTAIN_H
#define PG_LOOKAHEAD_MAINTAIN_H

#include "access/amapi.h"

/*
 * Install the hook that guards what an attached access method needs.  Called
 * once per process, when the library is loaded.
 */
extern void MaintainInit(void);

/*
 * Replace the members that are streamed.  Not called on a server that streams
 * them itself.
 */
extern void hash_overlay(IndexAmRoutine *routine);
extern void gin_overlay(IndexAmRoutine *routine);
extern void bloom_overlay(IndexAmRoutine *routine);

#endif							/* PG_LOOKAHEAD_MAINTAIN_H */
