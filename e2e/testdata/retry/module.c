// A dynamic module of Envoy 1.40 with an HTTP filter that passes everything on.
#define HOOK(name) \
  int envoy_dynamic_module_on_http_filter_##name(void) { return 0; }

static const int config = 1;

const char *envoy_dynamic_module_on_program_init(void) { return ""; }
const void *envoy_dynamic_module_on_http_filter_config_new(void) { return &config; }
const void *envoy_dynamic_module_on_http_filter_new(void) { return &config; }

HOOK(config_destroy)
HOOK(config_http_callout_done)
HOOK(config_http_stream_complete)
HOOK(config_http_stream_data)
HOOK(config_http_stream_headers)
HOOK(config_http_stream_reset)
HOOK(config_http_stream_trailers)
HOOK(config_scheduled)
HOOK(destroy)
HOOK(downstream_above_write_buffer_high_watermark)
HOOK(downstream_below_write_buffer_low_watermark)
HOOK(http_callout_done)
HOOK(http_stream_complete)
HOOK(http_stream_data)
HOOK(http_stream_headers)
HOOK(http_stream_reset)
HOOK(http_stream_trailers)
HOOK(local_reply)
HOOK(request_body)
HOOK(request_headers)
HOOK(request_trailers)
HOOK(response_body)
HOOK(response_headers)
HOOK(response_trailers)
HOOK(scheduled)
HOOK(stream_complete)
