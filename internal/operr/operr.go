// Package operr makes operation errors that several packages return in the same form.
package operr

import (
	"context"
	"errors"
	"slices"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// Cancelled returns the error of operation op, which ended because ctx ended: Kind Cancelled, with
// ctx.Err, the cause of a context.WithCancelCause and state in its chain. state is the reason why
// op had not completed, such as transport.ErrOutcomeUnknown or the last connection failure; it may
// be nil.
func Cancelled(ctx context.Context, op transport.Op, scope transport.Scope, state error) *transport.Error {
	var causes list
	causes.add(ctx.Err())
	if cause := lifetime.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // one that wraps it says more
		causes.add(cause)
	}
	causes.add(state)
	return &transport.Error{Kind: transport.Cancelled, Scope: scope, Op: op, Err: causes}
}

// TooLarge returns the error for a message of size bytes, body of them in its body. At most limit
// are allowed.
func TooLarge(size, body, limit int) *transport.Error {
	return &transport.Error{Kind: transport.TooLarge, Op: transport.OpSend,
		Err: errors.New(texts.TooLarge(size, body, limit))}
}

// NoPlace returns the error for a message with a field that has no place over the named protocol:
// Topic, Retain and, unless replies is true, ResponseTopic. It is nil for other messages.
func NoPlace(m *transport.Message, protocol string, replies bool) *transport.Error {
	var field string
	switch {
	case m.Topic != "":
		field = "Topic"
	case m.ResponseTopic != "" && !replies:
		field = "ResponseTopic"
	case m.Retain:
		field = "Retain"
	default:
		return nil
	}
	return &transport.Error{Kind: transport.Unsupported, Op: transport.OpSend, Err: errors.New("message " + field +
		" has no place over " + protocol + " to this peer; leave it unset, or use MQTT with Options.Dialect for a broker")}
}

// NoPlaceOutsideHubs returns the error for a message with an Output or a field of System that the
// named protocol has no place for to this peer. places are those that it has a place for, such as
// "Output" and "System.To". It is nil for other messages.
func NoPlaceOutsideHubs(m *transport.Message, protocol string, places ...string) *transport.Error {
	if m.Output == "" && m.System == nil {
		return nil
	}
	for _, f := range hubFields(m) {
		if f.value != "" && !slices.Contains(places, f.name) {
			return &transport.Error{Kind: transport.Unsupported, Op: transport.OpSend, Err: errors.New("message " + f.name +
				" has no place over " + protocol + " to this peer; leave it unset, or use a transport to a hub that has it")}
		}
	}
	return nil
}

type hubField struct{ name, value string }

// hubFields are Output and the fields of System.
func hubFields(m *transport.Message) [9]hubField {
	p := m.System
	if p == nil {
		p = new(transport.SystemProperties)
	}
	return [...]hubField{
		{"Output", m.Output}, {"System.To", p.To}, {"System.UserID", p.UserID}, {"System.Schema", p.Schema},
		{"System.InterfaceID", p.InterfaceID}, {"System.ConnectionDeviceID", p.ConnectionDeviceID},
		{"System.ConnectionModuleID", p.ConnectionModuleID}, {"System.DiagnosticID", p.DiagnosticID},
		{"System.DiagnosticContext", p.DiagnosticContext},
	}
}

// With returns an error with both errors in its chain. state may be nil.
func With(err, state error) error {
	if state == nil {
		return err
	}
	return list{err, state}
}

// list joins errors on one line; errors.Join puts each on its own line.
type list []error

func (l *list) add(err error) {
	if err != nil {
		*l = append(*l, err)
	}
}

func (l list) Error() string {
	text := ""
	for i, err := range l {
		if i > 0 {
			text += "; "
		}
		text += err.Error()
	}
	return text
}

func (l list) Unwrap() []error { return l }
