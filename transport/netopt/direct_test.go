package netopt

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// host is a name with several addresses in a network where some of them do not work.
type host struct {
	addresses []string
	refuses   map[string]bool
	answers   map[string]time.Duration // later than at once; an attempt that is cancelled before it ends
	silent    map[string]bool

	mu     sync.Mutex
	began  time.Time
	dialed []string
	at     []time.Duration
	open   int // attempts and connections
}

func (h *host) connect(ctx context.Context, addr string) (net.Conn, error) {
	h.began = time.Now()
	return staggered{h.dial, h.lookup}.connect(ctx, "tcp", addr)
}

func (h *host) lookup(_ context.Context, network, name string) ([]netip.Addr, error) {
	if network != "ip" || name != "hub.example.test" {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	var ips []netip.Addr
	for _, a := range h.addresses {
		ips = append(ips, netip.MustParseAddr(a))
	}
	return ips, nil
}

func (h *host) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	ip, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.dialed, h.at = append(h.dialed, addr), append(h.at, time.Since(h.began))
	h.open++
	h.mu.Unlock()
	failed := func(err error) (net.Conn, error) {
		h.mu.Lock()
		h.open--
		h.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 8883}, Err: err}
	}
	switch {
	case h.refuses[ip]:
		return failed(errors.New("connection refused"))
	case h.silent[ip]:
		<-ctx.Done()
		return failed(ctx.Err())
	}
	answer := time.NewTimer(h.answers[ip])
	defer answer.Stop()
	select {
	case <-answer.C:
	case <-ctx.Done():
		return failed(ctx.Err())
	}
	c, far := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, far) // until the connection is closed
		h.mu.Lock()
		h.open--
		h.mu.Unlock()
	}()
	return c, nil
}

func set(ips ...string) map[string]bool {
	m := map[string]bool{}
	for _, ip := range ips {
		m[ip] = true
	}
	return m
}

func TestDirectTriesTheAddressesOfANameBesideEachOther(t *testing.T) {
	const v4a, v4b, v4c, v6a, v6b = "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2"
	for name, c := range map[string]struct {
		host   *host
		dialed []string
		took   time.Duration
	}{
		"one address": {&host{addresses: []string{v4a}}, []string{"192.0.2.1:8883"}, 0},
		"the first answers in time": {&host{addresses: []string{v4a, v4b}, answers: map[string]time.Duration{v4a: 240e6}},
			[]string{"192.0.2.1:8883"}, 240 * time.Millisecond},
		"the first is silent": {&host{addresses: []string{v4a, v4b}, silent: set(v4a)},
			[]string{"192.0.2.1:8883", "192.0.2.2:8883"}, 250 * time.Millisecond},
		"two are silent": {&host{addresses: []string{v4a, v4b, v4c}, silent: set(v4a, v4b)},
			[]string{"192.0.2.1:8883", "192.0.2.2:8883", "192.0.2.3:8883"}, 500 * time.Millisecond},
		"the first refuses": {&host{addresses: []string{v4a, v4b}, refuses: set(v4a)},
			[]string{"192.0.2.1:8883", "192.0.2.2:8883"}, 0},
		"IPv6 is silent": {&host{addresses: []string{v6a, v6b, v4a}, silent: set(v6a, v6b)},
			[]string{"[2001:db8::1]:8883", "192.0.2.1:8883"}, 250 * time.Millisecond},
		"IPv4 is silent": {&host{addresses: []string{v4a, v4b, v6a}, silent: set(v4a, v4b)},
			[]string{"192.0.2.1:8883", "[2001:db8::1]:8883"}, 250 * time.Millisecond},
		"the first answers last": {&host{addresses: []string{v4a, v4b},
			answers: map[string]time.Duration{v4a: 9e8, v4b: 1e8}},
			[]string{"192.0.2.1:8883", "192.0.2.2:8883"}, 350 * time.Millisecond},
		"both answer at once": {&host{addresses: []string{v4a, v4b},
			answers: map[string]time.Duration{v4a: 5e8, v4b: 25e7}},
			[]string{"192.0.2.1:8883", "192.0.2.2:8883"}, 500 * time.Millisecond},
		"an address twice, once as IPv6": {&host{addresses: []string{v4a, "::ffff:192.0.2.1", v4a, v4b}, silent: set(v4a)},
			[]string{"192.0.2.1:8883", "192.0.2.2:8883"}, 250 * time.Millisecond},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			conn, err := c.host.connect(t.Context(), "hub.example.test:8883")
			require.NoError(t, err)
			require.Equal(t, c.took, time.Since(c.host.began))
			require.Equal(t, c.dialed, c.host.dialed)
			synctest.Wait()
			require.Equal(t, 1, c.host.open, "the other attempts ended, their connections are closed")
			require.NoError(t, conn.Close())
		})
	}
}

func TestDirectReportsTheFailureOfEachAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{addresses: []string{"192.0.2.1", "2001:db8::1", "192.0.2.2"}, refuses: set("192.0.2.1", "192.0.2.2"),
			silent: set("2001:db8::1")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := h.connect(ctx, "hub.example.test:8883")
		require.EqualError(t, err, "no address connected: dial tcp 192.0.2.1:8883: connection refused; "+
			"dial tcp [2001:db8::1]:8883: context deadline exceeded; dial tcp 192.0.2.2:8883: connection refused")
		require.Equal(t, []time.Duration{0, 0, 250 * time.Millisecond}, h.at, "the next address follows a failure at once")
		require.Equal(t, time.Second, time.Since(h.began), "until the deadline of the dial")
		require.Zero(t, h.open)
	})
}

func TestDirectBeginsNoAttemptAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
		h := &host{addresses: three, silent: set(three...)}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := h.connect(ctx, "hub.example.test:8883")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"192.0.2.1:8883", "192.0.2.2:8883"}, h.dialed)
		require.Equal(t, 300*time.Millisecond, time.Since(h.began))
		require.Zero(t, h.open)
	})
}

func TestDirectSaysThatItsContextEndedDuringTheLookup(t *testing.T) {
	h := &host{addresses: []string{"192.0.2.1", "192.0.2.2"}, silent: set("192.0.2.1", "192.0.2.2")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.connect(ctx, "hub.example.test:8883")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"192.0.2.1:8883"}, h.dialed)
}

func TestDirectTriesSixteenAddressesOfBothFamiliesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		for i := range 1000 {
			h.addresses = append(h.addresses, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
		}
		h.addresses = append(h.addresses, "2001:db8::1")
		h.refuses = set(h.addresses...)
		_, err := h.connect(t.Context(), "hub.example.test:8883")
		require.Error(t, err)
		require.Len(t, h.dialed, 16)
		require.Equal(t, "[2001:db8::1]:8883", h.dialed[1])
	})
}

func TestDirectLooksUpNamesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		for _, addr := range []string{"192.0.2.7:1", "[2001:db8::7]:1", "[fe80::1%eth0]:1"} {
			conn, err := h.connect(t.Context(), addr)
			require.NoError(t, err)
			require.Equal(t, addr, h.dialed[len(h.dialed)-1])
			require.NoError(t, conn.Close())
		}
		_, err := h.connect(t.Context(), "other.example.test:1")
		require.EqualError(t, err, "dial tcp: lookup other.example.test: no such host")
		kind, ok := neterr.Kind(err)
		require.True(t, ok)
		require.Equal(t, transport.Network, kind)
	})
}
