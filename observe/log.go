package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Log makes clients created with o log to l; nil means slog.Default(). Callbacks already in
// o.OnStatus and o.Trace are called too, after each event was logged. Call it before device.New,
// once for each logger.
func Log(o *device.Options, l *slog.Logger) {
	o.OnStatus = onStatus(l, o.OnStatus)
	o.Trace = trace(l, o.Trace)
}

// onStatus returns a callback for device.Options.OnStatus that logs each status to l and then
// calls next. A nil l means slog.Default(); next may be nil.
func onStatus(l *slog.Logger, next func(device.Status)) func(device.Status) {
	l = orDefault(l)
	return func(s device.Status) {
		logStatus(l, s)
		if next != nil {
			next(s)
		}
	}
}

// trace returns hooks for device.Options.Trace that log each event to l and then call those of
// next, which is not changed. A nil l means slog.Default(); next may be nil. Use it together with
// OnStatus, which logs the main events.
func trace(l *slog.Logger, next *device.Trace) *device.Trace {
	l = orDefault(l)
	var user device.Trace
	if next != nil {
		user = *next
	}
	t := user // hooks unknown to this package are only forwarded
	t.Connected = func(info transport.Info, took time.Duration) {
		if on(l, slog.LevelDebug) {
			attrs := []slog.Attr{slog.Duration("took", took)}
			if info.Window > 0 {
				attrs = append(attrs, slog.Int("window", info.Window))
			}
			if !info.Expires.IsZero() {
				attrs = append(attrs, slog.Time("expires", info.Expires))
			}
			log(l, slog.LevelDebug, "session up", attrs...)
		}
		if user.Connected != nil {
			user.Connected(info, took)
		}
	}
	t.SessionEnd = func(err error, up time.Duration) {
		if on(l, slog.LevelDebug) {
			log(l, slog.LevelDebug, "session ended", appendError([]slog.Attr{slog.Duration("up", up)}, err)...)
		}
		if user.SessionEnd != nil {
			user.SessionEnd(err, up)
		}
	}
	t.Decision = func(a retrypolicy.Attempt, d retrypolicy.Decision) {
		if on(l, slog.LevelDebug) {
			attrs := []slog.Attr{
				slog.Bool("again", d.Retry), slog.Int("retry", a.Retry), slog.Duration("delay", d.Delay), slog.Duration("elapsed",
					a.Elapsed),
				slog.String("kind", a.Kind.String()), slog.String("scope", a.Scope.String()),
			}
			if a.After != 0 {
				attrs = append(attrs, slog.Duration("retry_after", a.After))
			}
			log(l, slog.LevelDebug, "retry policy decided", attrs...)
		}
		if user.Decision != nil {
			user.Decision(a, d)
		}
	}
	t.Sent = func(n int) {
		if on(l, slog.LevelDebug) {
			log(l, slog.LevelDebug, "messages handed over", slog.Int("messages", n))
		}
		if user.Sent != nil {
			user.Sent(n)
		}
	}
	t.Settled = func(o transport.Outcome) {
		if on(l, slog.LevelDebug) {
			log(l, slog.LevelDebug, "verdict handed over", slog.String("outcome", o.String()))
		}
		if user.Settled != nil {
			user.Settled(o)
		}
	}
	t.HandlerPanic = func(v any) {
		if e, _ := v.(*transport.Error); e != nil && e.Op == transport.OpSettle {
			if on(l, slog.LevelWarn) {
				log(l, slog.LevelWarn, "an incoming message was not handled", slog.String("error", panicText(e)))
			}
		} else if on(l, slog.LevelError) {
			log(l, slog.LevelError, "a handler panicked", slog.String("panic", panicText(v)))
		}
		if user.HandlerPanic != nil {
			user.HandlerPanic(v)
		}
	}
	t.InputUnhandled = func(input string) {
		if on(l, slog.LevelWarn) {
			log(l, slog.LevelWarn, "a message came by an input without a handler", slog.String("input", input))
		}
		if user.InputUnhandled != nil {
			user.InputUnhandled(input)
		}
	}
	t.ClockJump = func(by time.Duration) {
		if on(l, slog.LevelInfo) {
			log(l, slog.LevelInfo, "the clock jumped", slog.Duration("by", by))
		}
		if user.ClockJump != nil {
			user.ClockJump(by)
		}
	}
	return &t
}

// event defines how a status with a certain reason is logged.
type event struct {
	level slog.Level
	text  string
}

var events = [...]event{
	device.ReasonNotOpened:      {slog.LevelDebug, "not opened yet"},
	device.ReasonConnecting:     {slog.LevelDebug, "connecting to the hub"},
	device.ReasonConnectionOK:   {slog.LevelInfo, "the connection to the hub is up"},
	device.ReasonConnectionLost: {slog.LevelWarn, "the connection to the hub was lost"},
	device.ReasonAttemptFailed:  {slog.LevelWarn, "an attempt to connect to the hub failed"},
	device.ReasonHeld:           {slog.LevelInfo, "the retry policy delays the next attempt"},
	device.ReasonPaused:         {slog.LevelWarn, "the hub refused a message for the moment, sending is paused"},
	device.ReasonPlanned:        {slog.LevelInfo, "replacing the connection on request"},
	device.ReasonTokenRenewal:   {slog.LevelInfo, "replacing the connection to renew the token"},
	device.ReasonClockJumped:    {slog.LevelInfo, "replacing the connection after a clock jump"},
	device.ReasonNotRetryable:   {slog.LevelError, "the connection failed, and a retry cannot help"},
	device.ReasonRetryExpired:   {slog.LevelError, "the retries ended without a connection"},
	device.ReasonOpenCancelled:  {slog.LevelWarn, "Open was cancelled before the first connection"},
	device.ReasonClientClosed:   {slog.LevelInfo, "the client was closed"},
}

// eventOf returns the event for s, also for reasons that are newer than the table.
func eventOf(s device.Status) event {
	if s.Reason == device.ReasonConnectionOK && s.Err != nil {
		return event{slog.LevelWarn, "the connection to the hub is up, without all that has a handler"}
	}
	if int(s.Reason) < len(events) {
		return events[s.Reason]
	}
	if s.Err != nil {
		return event{slog.LevelWarn, s.Reason.String()}
	}
	return event{slog.LevelInfo, s.Reason.String()}
}

func logStatus(l *slog.Logger, s device.Status) {
	if s.Missed > 0 && on(l, slog.LevelWarn) {
		log(l, slog.LevelWarn, "statuses are missing here, OnStatus was too slow", slog.Int("missed", s.Missed))
	}
	e := eventOf(s)
	if !on(l, e.level) {
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs, slog.String("state", s.State.String()), slog.String("reason", s.Reason.String()))
	waits := s.Reason == device.ReasonConnectionLost || s.Reason == device.ReasonAttemptFailed ||
		s.Reason == device.ReasonHeld ||
		s.Reason == device.ReasonPaused
	if s.Retry > 0 {
		attrs = append(attrs, slog.Int("retry", s.Retry))
	}
	if waits || s.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", s.Delay))
	}
	attrs = appendError(attrs, s.Err)
	hint := s.Hint()
	if hint != "" {
		attrs = append(attrs, slog.String("hint", hint))
	}
	if s.Flaps > 0 {
		attrs = append(attrs, slog.Int("flaps", s.Flaps))
	}
	if suspect := s.Suspect.String(); suspect != "" && !strings.HasPrefix(hint, suspect) {
		attrs = append(attrs, slog.String("suspect", suspect))
	}
	log(l, e.level, e.text, attrs...)
}

// appendError appends err's text and attributes; nothing without an error.
func appendError(attrs []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attrs
	}
	attrs = append(attrs, slog.String("error", scrub.Error(err)), slog.String("kind", transport.KindOf(err).String()))
	e := transport.Find(err)
	if e == nil {
		return attrs
	}
	if cause := transport.Find(e.Err); cause != nil {
		attrs = append(attrs, slog.String("cause", cause.Kind.String()))
	}
	attrs = append(attrs, slog.String("scope", e.Scope.String()))
	if op := e.Op.String(); op != "" {
		attrs = append(attrs, slog.String("op", op))
	}
	if e.Proto != "" {
		attrs = append(attrs, slog.String("proto", e.Proto))
	}
	if e.RetryAfter != 0 {
		attrs = append(attrs, slog.Duration("retry_after", e.RetryAfter))
	}
	return attrs
}

// panicText returns v if it is a string or an error, otherwise its type; other values may contain
// data of a message.
func panicText(v any) string {
	switch v.(type) {
	case string, error:
		return scrub.Text(fmt.Sprint(v))
	}
	return fmt.Sprintf("a %T", v)
}

func orDefault(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.Default()
	}
	return l
}

func on(l *slog.Logger, level slog.Level) bool { return l.Enabled(context.Background(), level) }

func log(l *slog.Logger, level slog.Level, text string, attrs ...slog.Attr) {
	l.LogAttrs(context.Background(), level, text, attrs...)
}
