/* provider.h: the one event that is replayed: a record as a sequence of bytes. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER hbtrace_replay
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./provider.h"
#if !defined(HBTRACE_REPLAY_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define HBTRACE_REPLAY_PROVIDER_H
#include <lttng/tracepoint.h>
#include <stdint.h>
LTTNG_UST_TRACEPOINT_EVENT(hbtrace_replay, record, LTTNG_UST_TP_ARGS(const uint8_t *, bytes, uint32_t, count),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_sequence(uint8_t, bytes, bytes, uint32_t, count)))
#endif
#include <lttng/tracepoint-event.h>
