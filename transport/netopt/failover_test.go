package netopt

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// nodes is a network of three addresses. It records the order of the attempts.
type nodes struct {
	dead   map[string]error // a nil error answers nothing
	dialed []string
}

func (n *nodes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.dialed = append(n.dialed, addr)
	err, dead := n.dead[addr]
	if !dead {
		c, _ := net.Pipe()
		return c, nil
	}
	if err == nil {
		<-ctx.Done()
		err = ctx.Err()
	}
	return nil, err
}

// attempts dials once and returns the addresses that were tried.
func (n *nodes) attempts(t *testing.T, dial DialFunc) []string {
	t.Helper()
	n.dialed = nil
	c, err := dial(t.Context(), "tcp", "ignored:1")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return n.dialed
}

// after returns the three addresses in the order that begins behind addr.
func after(addr string) []string {
	return map[string][]string{
		"a:1": {"b:1", "c:1", "a:1"}, "b:1": {"c:1", "a:1", "b:1"}, "c:1": {"a:1", "b:1", "c:1"},
	}[addr]
}

func TestFailoverBeginsBehindTheLastAddressThatConnected(t *testing.T) {
	n := &nodes{}
	dial := Failover(n.dial, "a:1", "b:1", "c:1")
	last := n.attempts(t, dial)[0]
	for range 7 {
		got := n.attempts(t, dial)
		require.Equal(t, after(last)[:1], got)
		last = got[0]
	}
}

func TestFailoverBeginsWithAnyOfItsAddresses(t *testing.T) {
	n := &nodes{}
	begun := map[string]bool{}
	for tries := 0; len(begun) < 3; tries++ {
		require.Less(t, tries, 1000)
		begun[n.attempts(t, Failover(n.dial, "a:1", "b:1", "c:1"))[0]] = true
	}
}

func TestFailoverSkipsDeadAddresses(t *testing.T) {
	n := &nodes{}
	dial := Failover(n.dial, "a:1", "b:1", "c:1")
	order := after(n.attempts(t, dial)[0])
	n.dead = map[string]error{order[0]: errors.New("refused"), order[1]: errors.New("refused")}
	require.Equal(t, order, n.attempts(t, dial))
	n.dead = nil
	require.Equal(t, order[:1], n.attempts(t, dial), "behind the one that connected")
}

func TestFailoverReportsTheErrorOfEachAddress(t *testing.T) {
	refused, unreachable := errors.New("refused"), &transport.Error{Kind: transport.Network, Err: errors.New("no route")}
	n := &nodes{dead: map[string]error{"a:1": refused, "b:1": unreachable}}
	_, err := Failover(n.dial, "a:1", "b:1")(t.Context(), "tcp", "ignored:1")
	require.ErrorIs(t, err, refused)
	require.ErrorIs(t, err, unreachable)
	require.ErrorContains(t, err, "no address connected: ")
	require.ErrorContains(t, err, "refused")
	require.ErrorContains(t, err, "no route")
}

// One node that refuses for good, as a proxy on the way may, does not end a client whose other
// nodes may come back.
func TestFailoverIsTerminalOnlyIfEachAddressIs(t *testing.T) {
	forbidden := &transport.Error{Kind: transport.Forbidden, Err: errors.New("not this one")}
	unavailable := &transport.Error{Kind: transport.Unavailable, Err: errors.New("restarting")}
	down := errors.New("no route")
	for _, c := range []struct {
		dead []error
		kind transport.Kind
	}{
		{[]error{forbidden, forbidden}, transport.Forbidden},
		{[]error{forbidden, unavailable}, transport.Network},
		{[]error{forbidden, down}, transport.Network},
		{[]error{down, down}, transport.Unknown}, // which transports take for a network failure
	} {
		n := &nodes{dead: map[string]error{"a:1": c.dead[0], "b:1": c.dead[1]}}
		for range 20 { // each begins with either
			_, err := Failover(n.dial, "a:1", "b:1")(t.Context(), "tcp", "ignored:1")
			require.Equal(t, c.kind, transport.KindOf(err), "%v", err)
			require.ErrorContains(t, err, c.dead[0].Error())
			require.ErrorContains(t, err, c.dead[1].Error())
		}
	}
}

func TestFailoverGivesASilentAddressItsShareOnly(t *testing.T) {
	silent := map[string]error{"a:1": nil, "b:1": nil, "c:1": nil}
	for name, c := range map[string]struct {
		deadline, want time.Duration
	}{
		"without a deadline":       {0, 15 * time.Second},
		"with a distant deadline":  {time.Minute, 15 * time.Second},
		"with a deadline in 3 s":   {3 * time.Second, 3 * time.Second},
		"with a deadline in 10 ms": {10 * time.Millisecond, 10 * time.Millisecond},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			ctx := t.Context()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			n := &nodes{dead: silent}
			began := time.Now()
			_, err := Failover(n.dial, "a:1", "b:1", "c:1")(ctx, "tcp", "")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Len(t, n.dialed, 3)
			require.Equal(t, c.want, time.Since(began))
		})
	}
}

func TestFailoverEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{dead: map[string]error{"a:1": nil, "b:1": nil}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := Failover(n.dial, "a:1", "b:1")(ctx, "tcp", "")
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, n.dialed, 1)
	})
}

func TestFailoverRefusesWrongAddresses(t *testing.T) {
	for name, addrs := range map[string][]string{
		"none": nil, "no port": {"a:1", "b"}, "no host": {":1"}, "port 0": {"a:0"}, "port with a name": {"a:mqtt"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nodes{}
			_, err := Failover(n.dial, addrs...)(t.Context(), "tcp", "")
			require.ErrorIs(t, err, transport.Invalid)
			require.Empty(t, n.dialed)
		})
	}
}

func TestFailoverDialsByItself(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dial := Failover(nil, "127.0.0.1:1", l.Addr().String()) // nobody listens at the first one
	for range 3 {
		c, err := dial(t.Context(), "tcp", "ignored:1")
		require.NoError(t, err)
		require.Equal(t, l.Addr(), c.RemoteAddr())
		require.NoError(t, c.Close())
	}
	require.NoError(t, l.Close())
}
