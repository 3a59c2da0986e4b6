/*-------------------------------------------------------------------------
 *
 * profile_list.h
 *		The functions that profiles show, and their names: included several
 *		times, each with another PROFILE_FUNCTION().
 *
 *-------------------------------------------------------------------------
 */

/* there is no include guard here */

/* called for each row or heap page of a scan */
PROFILE_FUNCTION(PROFILE_INDEX_SCAN, "IndexScan")
PROFILE_FUNCTION(PROFILE_INDEX_ONLY_SCAN, "IndexOnlyScan")
PROFILE_FUNCTION(PROFILE_BITMAP_HEAP_SCAN, "BitmapHeapScan")
PROFILE_FUNCTION(PROFILE_AMGETTUPLE, "amgettuple")
PROFILE_FUNCTION(PROFILE_AMGETBITMAP, "amgetbitmap")
PROFILE_FUNCTION(PROFILE_HEAP_FETCH, "heap_fetch")
PROFILE_FUNCTION(PROFILE_PAGE_ROWS, "page_rows")
PROFILE_FUNCTION(PROFILE_HOT_SEARCH, "heap_hot_search")
PROFILE_FUNCTION(PROFILE_VISIBILITY_MAP, "visibility_map")
PROFILE_FUNCTION(PROFILE_PRUNE, "heap_page_prune")
PROFILE_FUNCTION(PROFILE_FOLLOW, "follow_scan")
PROFILE_FUNCTION(PROFILE_FILL, "fill_window")
PROFILE_FUNCTION(PROFILE_ENTRIES_NEXT, "entries_next")
PROFILE_FUNCTION(PROFILE_LEAF_START, "leaf_read_start")
PROFILE_FUNCTION(PROFILE_LEAF_EXAMINE, "leaf_examine")
PROFILE_FUNCTION(PROFILE_DESCENTS_NEXT, "descents_next")
PROFILE_FUNCTION(PROFILE_VISIT_BLOCK, "visit_block")
PROFILE_FUNCTION(PROFILE_WINDOW_START, "window_start")
PROFILE_FUNCTION(PROFILE_WINDOW_TAKE, "window_take")
PROFILE_FUNCTION(PROFILE_WINDOW_DRAIN, "window_drain")
PROFILE_FUNCTION(PROFILE_READ_WAIT, "read_wait")
PROFILE_FUNCTION(PROFILE_READ_DIRECT, "read_direct")

/* called for each page of a relation */
PROFILE_FUNCTION(PROFILE_STREAM_NEXT, "read_stream_next_buffer")
PROFILE_FUNCTION(PROFILE_STREAM_CALLBACK, "read_stream_callback")
PROFILE_FUNCTION(PROFILE_PAGE_BTREE, "pgstatindex_page")
PROFILE_FUNCTION(PROFILE_PAGE_HASH, "pgstathashindex_page")
PROFILE_FUNCTION(PROFILE_PAGE_BLOOM, "pgstatbloomindex_page")
PROFILE_FUNCTION(PROFILE_PAGE_HEAP, "pgstattuple_heap_page")
PROFILE_FUNCTION(PROFILE_PAGE_HEAP_APPROX, "pgstattuple_approx_page")
PROFILE_FUNCTION(PROFILE_PAGE_INDEX, "pgstattuple_index_page")
PROFILE_FUNCTION(PROFILE_VACUUM_HASH, "hash_vacuum_bucket")
PROFILE_FUNCTION(PROFILE_VACUUM_GIN, "gin_vacuum_page")
PROFILE_FUNCTION(PROFILE_VACUUM_BLOOM, "bloom_vacuum_page")
PROFILE_FUNCTION(PROFILE_SCAN_BLOOM, "bloom_scan_page")
PROFILE_FUNCTION(PROFILE_LOG_PAGES, "log_pages")
