package daemon

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/daemon/trace"
	"github.com/chancery-xds/chancery/store"
)

// lastTraces is the time for which the shutdown waits until the last traces are sent.
const lastTraces = 2 * time.Second

// openTraces returns the traces that the environment configures (OTEL_*). It returns nil if tracing
// is off.
func openTraces(log *slog.Logger, st *store.Store) (*trace.Traces, error) {
	if !trace.Enabled() {
		return nil, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces could not be sent", "error", err)
	}))
	t, err := trace.Open(context.Background(), cli.Version(), st.Newest)
	if err != nil {
		return nil, cli.Fail(err, "unset OTEL_EXPORTER_OTLP_ENDPOINT to send no traces")
	}
	log.Info("sending traces to OpenTelemetry")
	return t, nil
}

// closeTraces sends the remaining traces.
func closeTraces(log *slog.Logger, t *trace.Traces) {
	ctx, cancel := context.WithTimeout(context.Background(), lastTraces)
	defer cancel()
	t.Close(ctx, log)
}
