package transport_test

import (
	"errors"
	"testing"

	"github.com/hubline-iot/hubline/transport"
)

// kinds has every kind with its value and text. The values are part of the contract: a stored
// status must keep its meaning after an update.
var kinds = []struct {
	kind  transport.Kind
	value uint8
	text  string
}{
	{transport.Unknown, 0, "unknown error"},
	{transport.Network, 1, "network failure"},
	{transport.Timeout, 2, "timed out"},
	{transport.Unavailable, 3, "service unavailable"},
	{transport.Throttled, 4, "throttled"},
	{transport.Quota, 5, "quota exceeded"},
	{transport.ClockUnset, 6, "clock not set"},
	{transport.Unauthorized, 7, "unauthorized"},
	{transport.Untrusted, 8, "certificate not trusted"},
	{transport.Forbidden, 9, "forbidden"},
	{transport.NotFound, 10, "not found"},
	{transport.TooLarge, 11, "too large"},
	{transport.Invalid, 12, "invalid"},
	{transport.Conflict, 13, "conflict"},
	{transport.Unsupported, 14, "unsupported"},
	{transport.Protocol, 15, "protocol violation"},
	{transport.RetryExpired, 16, "retries ended"},
	{transport.Expired, 17, "message expired"},
	{transport.Dropped, 18, "message dropped"},
	{transport.Closed, 19, "client closed"},
	{transport.Cancelled, 20, "cancelled"},
	{transport.Poison, 21, "poison message"},
}

func TestKindTableIsComplete(t *testing.T) {
	n := 0
	for transport.Kind(n).String() != "undefined kind" {
		n++
	}
	if n != len(kinds) {
		t.Errorf("there are %d kinds, this table has %d", n, len(kinds))
		return
	}
	seen := map[string]bool{}
	for i, k := range kinds {
		if int(k.kind) != i || uint8(k.kind) != k.value {
			t.Errorf("kind %d: the constant is %d, want %d", i, k.kind, k.value)
		}
		if k.kind.String() != k.text || k.kind.Error() != k.text {
			t.Errorf("kind %d: String %q, Error %q, want %q", i, k.kind.String(), k.kind.Error(), k.text)
		}
		if seen[k.text] {
			t.Errorf("%q stands for two kinds", k.text)
		}
		seen[k.text] = true
	}
	for _, undefined := range []transport.Kind{transport.Kind(len(kinds)), 255} {
		if got := undefined.String(); got != "undefined kind" {
			t.Errorf("Kind(%d) = %q", undefined, got)
		}
	}
}

func TestKindIsAnErrorThatMatchesItselfOnly(t *testing.T) {
	for _, a := range kinds {
		for _, b := range kinds {
			if got := errors.Is(&transport.Error{Kind: a.kind}, b.kind); got != (a.kind == b.kind) {
				t.Errorf("errors.Is(error of kind %v, %v) = %v", a.kind, b.kind, got)
			}
			if got := errors.Is(a.kind, b.kind); got != (a.kind == b.kind) {
				t.Errorf("errors.Is(%v, %v) = %v", a.kind, b.kind, got)
			}
		}
	}
}

func TestOpTableIsComplete(t *testing.T) {
	want := map[transport.Op]string{
		transport.OpNone: "", transport.OpDial: "dial", transport.OpRun: "connection", transport.OpSend: "send",
		transport.OpOpen:  "open",
		transport.OpClose: "close", transport.OpRegister: "register", transport.OpCall: "call",
		transport.OpSubscribe: "subscribe",
		transport.OpTwinGet:   "twin get",
		transport.OpTwinPatch: "twin patch",
		transport.OpRenew:     "renew", transport.OpPing: "ping", transport.OpRespond: "respond",
		transport.OpSettle: "settle", transport.OpIssue: "certificate",
	}
	defined := 0
	for o := range 256 {
		op := transport.Op(o)
		text, ok := want[op]
		if !ok {
			text = "undefined operation"
		} else {
			defined++
		}
		if op.String() != text {
			t.Errorf("Op(%d) = %q, want %q", o, op.String(), text)
		}
	}
	if defined != len(want) {
		t.Errorf("%d operations, want %d", defined, len(want))
	}
}

func TestScopeText(t *testing.T) {
	if transport.ScopeOperation.String() != "operation" || transport.ScopeConnection.String() != "connection" {
		t.Errorf("%q, %q", transport.ScopeOperation, transport.ScopeConnection)
	}
}

func TestOutcomesHaveNames(t *testing.T) {
	for o, want := range map[transport.Outcome]string{transport.OutcomeAccept: "accept",
		transport.OutcomeRelease: "release",
		transport.OutcomeReject:  "reject", 9: "undefined outcome"} {
		if o.String() != want {
			t.Errorf("%d: %s", o, o)
		}
	}
}
