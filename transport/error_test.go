package transport_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

func TestErrorText(t *testing.T) {
	cause := errors.New("CONNACK 5 (not authorized)")
	for _, c := range []struct {
		err  transport.Error
		want string
	}{
		{transport.Error{}, "unknown error"},
		{transport.Error{Kind: transport.Network}, "network failure"},
		{transport.Error{Kind: transport.Unauthorized, Op: transport.OpDial, Proto: "mqtt", Err: cause},
			"mqtt dial: unauthorized: CONNACK 5 (not authorized)"},
		{transport.Error{Kind: transport.Unauthorized, Proto: "mqtt"}, "mqtt unauthorized"},
		{transport.Error{Kind: transport.Throttled, Op: transport.OpTwinGet}, "twin get: throttled"},
		{transport.Error{Kind: transport.Closed, Op: transport.OpSend, Err: cause},
			"send: client closed: CONNACK 5 (not authorized)"},
		{transport.Error{Kind: transport.Kind(99), Op: transport.Op(99)}, "undefined operation: undefined kind"},
		{
			transport.Error{Kind: transport.RetryExpired, Op: transport.OpOpen, Err: &transport.Error{Kind: transport.Network,
				Op: transport.OpDial, Proto: "amqp"}},
			"open: retries ended: amqp dial: network failure",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.err, got, c.want)
		}
	}
}

// statusError stands for a protocol's own error type.
type statusError struct{ code int }

func (*statusError) Error() string { return "status" }

// wrapped wraps an error and has no Kind.
type wrapped struct{ cause error }

func (w wrapped) Error() string { return "wrapped: " + w.cause.Error() }
func (w wrapped) Unwrap() error { return w.cause }

type several []error

func (s several) Error() string   { return "several" }
func (s several) Unwrap() []error { return s }

func TestChainIsSearchedThroughSeveralWraps(t *testing.T) {
	status := &statusError{429}
	inner := &transport.Error{Kind: transport.Throttled, Proto: "http", Err: status}
	outer := &transport.Error{Kind: transport.RetryExpired, Err: wrapped{inner}}
	deep := wrapped{wrapped{wrapped{outer}}}

	if !errors.Is(errors.Unwrap(inner), status) {
		t.Error("Unwrap does not return the cause")
	}
	for _, k := range []transport.Kind{transport.RetryExpired, transport.Throttled} {
		if !errors.Is(deep, k) {
			t.Errorf("errors.Is does not find %v", k)
		}
	}
	if errors.Is(deep, transport.Network) {
		t.Error("errors.Is finds a kind that is not in the chain")
	}
	var found *transport.Error
	if !errors.As(deep, &found) || found != outer {
		t.Errorf("errors.As gives %v, want the outermost error", found)
	}
	var detail *statusError
	if !errors.As(deep, &detail) || detail.code != 429 {
		t.Errorf("errors.As does not reach the protocol's own error")
	}
	if got := transport.Find(deep); got != outer {
		t.Errorf("Find gives %v, want the outermost error", got)
	}
	if got := transport.KindOf(deep); got != transport.RetryExpired {
		t.Errorf("KindOf gives %v", got)
	}
}

func TestWalkStopsAtTheFirstThatIsFound(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	var seen []error
	found := errchain.Any(errors.Join(wrapped{a}, errors.Join(b), c), func(err error) bool {
		if slices.Contains([]error{a, b, c}, err) {
			seen = append(seen, err)
		}
		return len(seen) == 2 // at b
	})
	if !found || !slices.Equal(seen, []error{a, b}) {
		t.Errorf("%v, after %v", found, seen)
	}
	if errchain.Any(nil, func(error) bool { return true }) {
		t.Error("found something in nothing")
	}
}

// grow makes an error from bytes: leaves with and without a Kind, wraps, and lists.
func grow(seed *[]byte, depth int) error {
	b := byte(0)
	if len(*seed) > 0 {
		b, *seed = (*seed)[0], (*seed)[1:]
	}
	if depth == 0 {
		b %= 4
	}
	switch b % 8 {
	case 0:
		return errors.New("?")
	case 1:
		return transport.Kind(b >> 3)
	case 2:
		return &transport.Error{Kind: transport.Kind(b >> 3)}
	case 3:
		return nil
	case 4:
		return &transport.Error{Kind: transport.Kind(b >> 3), Err: grow(seed, depth-1)}
	case 5:
		return wrapped{grow(seed, depth-1)}
	}
	var list several
	for range b >> 3 % 4 {
		list = append(list, grow(seed, depth-1))
	}
	return list
}

// Find agrees with errors.As on all combinations of wraps.
func FuzzFind(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{5, 5, 2})
	f.Add([]byte{30, 0, 5, 1, 4, 2})
	f.Add([]byte{31, 6, 22, 3, 9, 10, 17, 12, 18, 255, 254, 252})
	f.Fuzz(func(t *testing.T, seed []byte) {
		err := grow(&seed, 5)
		var want *transport.Error
		errors.As(err, &want)
		if got := transport.Find(err); got != want {
			t.Errorf("Find = %v, errors.As finds %v", got, want)
		}
		transport.KindOf(err)
		var own transport.Kind
		if want == nil && errors.As(err, &own) && transport.KindOf(err) != own {
			t.Errorf("KindOf = %v, errors.As finds %v", transport.KindOf(err), own)
		}
	})
}

func TestFindAndKindOf(t *testing.T) {
	e := &transport.Error{Kind: transport.Quota}
	for _, c := range []struct {
		name string
		err  error
		find *transport.Error
		kind transport.Kind
	}{
		{"nil", nil, nil, transport.Unknown},
		{"foreign", errors.New("?"), nil, transport.Unknown},
		{"foreign, wrapped", wrapped{errors.New("?")}, nil, transport.Unknown},
		{"wrap around nothing", wrapped{}, nil, transport.Unknown},
		{"an error", e, e, transport.Quota},
		{"wrapped", wrapped{e}, e, transport.Quota},
		{"a kind", transport.Forbidden, nil, transport.Forbidden},
		{"a kind, wrapped twice", wrapped{wrapped{transport.Forbidden}}, nil, transport.Forbidden},
		{"the error outside decides over the kind inside", &transport.Error{Kind: transport.Closed, Err: transport.Network},
			nil, transport.Closed},
		{"one of several causes", errors.Join(errors.New("?"), wrapped{e}), e, transport.Quota},
		{"the first of several causes", wrapped{errors.Join(wrapped{transport.Forbidden}, e)}, e, transport.Forbidden},
		{"depth first", errors.Join(wrapped{errors.Join(errors.New("?"), transport.TooLarge)}, transport.Network), nil,
			transport.TooLarge},
		{"no cause among several", errors.Join(errors.New("?"), errors.New("!")), nil, transport.Unknown},
		{"a list that is empty", several{}, nil, transport.Unknown},
		{"a list with a hole", several{nil, e}, e, transport.Quota},
	} {
		want := c.find
		if o, ok := c.err.(*transport.Error); ok {
			want = o
		}
		if got := transport.Find(c.err); got != want {
			t.Errorf("%s: Find = %v, want %v", c.name, got, want)
		}
		if got := transport.KindOf(c.err); got != c.kind {
			t.Errorf("%s: KindOf = %v, want %v", c.name, got, c.kind)
		}
	}
}
