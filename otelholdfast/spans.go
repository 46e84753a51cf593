package otelholdfast

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// tracing makes the spans of calls and holds, for contexts whose span is recorded.
type tracing struct {
	tracer trace.Tracer
	scheme attribute.KeyValue
}

// spans are the spans of one call. They are in the contexts of its events, by the key
// of their tracing.
type spans struct {
	parent, lock, hold trace.Span
	group              string
}

func newTracing(o *Options) *tracing {
	tracers := o.TracerProvider
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	return &tracing{tracer: tracers.Tracer(scope), scheme: attribute.String("holdfast.store.scheme", o.Scheme)}
}

// of returns the spans of a call, or nil without any.
func (t *tracing) of(ctx context.Context) *spans {
	s, _ := ctx.Value(t).(*spans)
	return s
}

// begin begins a span. Its attributes are those of metrics, the lock's name, and more.
func (t *tracing) begin(ctx context.Context, name string, s *spans, e *holdfast.Event, more ...attribute.KeyValue) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name+" "+s.group, trace.WithAttributes(t.scheme,
		attribute.String("holdfast.lock.group", s.group), attribute.String("holdfast.lock.kind", string(e.Kind)),
		attribute.String("holdfast.lock.name", e.Name)), trace.WithAttributes(more...))
}

func (t *tracing) lockStart(ctx context.Context, group string, e *holdfast.LockStartInfo) context.Context {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return nil
	}
	s := &spans{parent: parent, group: group}
	ctx, s.lock = t.begin(ctx, "lock", s, &e.Event)
	return context.WithValue(ctx, t, s)
}

func (t *tracing) lockWait(ctx context.Context, e *holdfast.LockWaitInfo) {
	s := t.of(ctx)
	switch {
	case s == nil:
	case e.Err != nil:
		s.lock.AddEvent("wait", trace.WithAttributes(attribute.String("error.type", lockmetrics.ErrorType(e.Err))))
	default:
		s.lock.AddEvent("wait", trace.WithAttributes(
			attribute.String("holdfast.holder.host", e.Holder.Host), attribute.Int("holdfast.holder.pid", e.Holder.PID)))
	}
}

func (t *tracing) lockDone(ctx context.Context, result int, e *holdfast.LockDoneInfo) context.Context {
	s := t.of(ctx)
	if s == nil {
		return nil
	}
	end(s.lock, lockmetrics.Waits[result], e.Err)
	if e.Err != nil {
		return nil
	}
	ctx, s.hold = t.begin(trace.ContextWithSpan(ctx, s.parent), "hold", s, &e.Event, attribute.Int64("holdfast.lock.token", int64(e.Token)))
	return ctx
}

func (t *tracing) holdDone(ctx context.Context, result int, e *holdfast.HoldDoneInfo) {
	if s := t.of(ctx); s != nil {
		end(s.hold, lockmetrics.Holds[result], e.Err)
	}
}

// end ends a span with its result. A refused Try and a wait that ended are
// results, no errors.
func end(s trace.Span, r lockmetrics.Result, err error) {
	s.SetAttributes(attribute.String("holdfast.lock.outcome", r.Outcome))
	if r.ErrorType != "" {
		s.SetAttributes(attribute.String("error.type", r.ErrorType))
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}
