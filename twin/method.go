package twin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// MethodClient is the part of *device.Client that HandleMethod uses.
type MethodClient interface {
	HandleMethod(name string, handle device.MethodHandler) error
}

// Validator is implemented by payloads that check themselves. A FieldError names the wrong field;
// the text of any error goes to the caller, with status 400.
type Validator interface{ Validate() error }

// Statuser is implemented by results with a status other than 200, such as 202.
type Statuser interface{ Status() int }

// MethodOptions are the settings of one method.
type MethodOptions struct {
	// Limit is how many calls run at a time; further ones are answered with 503 at once. 0: only
	// device.Options.MethodLimit holds.
	Limit int
	// Timeout ends the handler's ctx. 0: only device.Options.MethodTimeout holds.
	Timeout time.Duration
	// AllowUnknown ignores members of the payload, and of objects in it, that no field has.
	AllowUnknown bool
	// OnError is called with the error of a handler whose text does not go to the caller. Calls may be
	// concurrent. Nil: it is lost.
	OnError func(err error)
}

// HandleMethod registers f for the direct method called name with the client (its HandleMethod,
// whose errors it returns). The payload is decoded into In, by encoding/json, field by field; names
// match as there, in any case. A member without a field is an error at any depth, unless
// AllowUnknown is set. A call without payload, or with null, passes the zero value. The result is
// encoded by encoding/json. Use struct{} for nothing. The error is Invalid for negative options and
// for structs that cannot be decoded by field: those that embed others, and fields with the option
// "string".
func HandleMethod[In, Out any](c MethodClient, name string, f func(ctx context.Context, in In) (Out, error),
	o *MethodOptions) error {
	m := &method[In, Out]{call: f}
	if o != nil {
		m.set = *o
	}
	if err := m.prepare(); err != nil {
		return &transport.Error{Kind: transport.Invalid, Op: transport.OpSubscribe,
			Err: fmt.Errorf("method %s: %w", scrub.Peer(name), err)}
	}
	return c.HandleMethod(name, m.handle)
}

type method[In, Out any] struct {
	call   func(ctx context.Context, in In) (Out, error)
	set    MethodOptions
	fields *fields.Set   // nil: In is decoded as a whole
	places chan struct{} // nil: no limit
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (m *method[In, Out]) prepare() (err error) {
	switch {
	case m.call == nil:
		return errors.New("no function; use the client's HandleMethod with nil to remove a handler")
	case m.set.Limit < 0:
		return fmt.Errorf("option Limit is %d; give 0 for no limit, or the number of calls", m.set.Limit)
	case m.set.Timeout < 0:
		return fmt.Errorf("option Timeout is %v; give 0 for none, or a duration", m.set.Timeout)
	}
	if m.set.Limit > 0 {
		m.places = make(chan struct{}, m.set.Limit)
	}
	t := reflect.TypeFor[In]()
	if t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshaler) && !m.set.AllowUnknown {
		m.fields, err = fields.Of(t)
	}
	return err
}

// handle is a device.MethodHandler. A panic of the program's function is the client's affair.
func (m *method[In, Out]) handle(ctx context.Context, c *device.MethodCall) (status int, body []byte) {
	if m.places != nil {
		select {
		case m.places <- struct{}{}:
			defer func() { <-m.places }()
		default:
			return errorAnswer(MethodErrorf(503, "%d calls of the method run already", m.set.Limit))
		}
	}
	if m.set.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.set.Timeout)
		defer cancel()
	}
	in, err := m.decode(c.Body)
	if err != nil {
		return errorAnswer(err)
	}
	out, err := m.call(ctx, in)
	if err != nil {
		return m.failed(ctx, err)
	}
	if body, err = json.Marshal(out); err != nil {
		return m.failed(ctx, fmt.Errorf("the result is no JSON: %w", err))
	}
	status = 200
	if s, ok := any(out).(Statuser); ok {
		status = s.Status()
	}
	return status, body
}

func (m *method[In, Out]) decode(body []byte) (in In, err error) {
	switch {
	case len(body) == 0:
	case !utf8.Valid(body): // encoding/json would take it, with other characters
		err = &FieldError{Err: errors.New("the payload is not JSON in UTF-8")}
	case m.fields != nil:
		err = m.fields.DecodeAll(reflect.ValueOf(&in), body)
	default:
		err = fields.Value(&in, body)
	}
	if err != nil {
		return in, err
	}
	v, ok := any(in).(Validator)
	if !ok {
		v, ok = any(&in).(Validator)
	}
	if ok {
		err = v.Validate()
	}
	if err != nil && len(fields.Named(err)) == 0 {
		err = &FieldError{Err: err}
	}
	return in, err
}

// failed answers a call whose handler returned an error.
func (m *method[In, Out]) failed(ctx context.Context, err error) (status int, body []byte) {
	known := (*MethodError)(nil)
	switch {
	case errors.As(err, &known), len(fields.Named(err)) > 0:
		return errorAnswer(err)
	case m.set.OnError != nil:
		_ = callback.Run("twin.MethodOptions.OnError", func() { m.set.OnError(err) })
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errorAnswer(MethodErrorf(504, "the method did not finish in its time"))
	case ctx.Err() != nil:
		return errorAnswer(MethodErrorf(503, "the device's client is being closed"))
	}
	return errorAnswer(MethodErrorf(500, "the method failed"))
}
