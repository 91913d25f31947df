package http_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A peer whose kernel accepts no data is given up before the request's timeout. The test runs in
// real time, because the timer is the kernel's.
func TestAPeerThatTakesNothing(t *testing.T) {
	var all sync.WaitGroup // t.Parallel would run one for each processor, and all but wait
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"dialed here": nil,
		"dialed by the user": func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return layered{c}, err
		},
		"in TLS to a proxy": func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return layered{dialer.NewProgressConn(c, 0)}, err
		},
	} {
		all.Go(func() { t.Run(name, func(t *testing.T) { aPeerThatTakesNothing(t, dial) }) })
	}
	all.Wait()
}

// layered exposes the connection below, as a *tls.Conn does.
type layered struct{ net.Conn }

func (l layered) NetConn() net.Conn { return l.Conn }

func aPeerThatTakesNothing(t *testing.T, dial func(context.Context, string, string) (net.Conn, error)) {
	narrow := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		}); e != nil {
			return e
		}
		return err
	}}
	l, err := narrow.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // the peer reads nothing
				<-done
				c.Close()
			}()
		}
	}()
	sign, err := transport.SharedKey(goodKey)
	require.NoError(t, err)
	lost := make(chan error, 10)
	o := &hubhttp.Options{Network: netopt.Options{Addr: l.Addr().String(), Plaintext: true, Dial: dial}, NoProof: true,
		Timeout: 2 * time.Second}
	c, err := device.New(&transport.Credentials{Host: "example.com", DeviceID: "d", Sign: sign}, hubhttp.New(o),
		&device.Options{OnStatus: func(s device.Status) {
			if s.Reason == device.ReasonConnectionLost {
				lost <- s.Err
			}
		}})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Open(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, c.Enqueue(ctx, &transport.Message{Body: make([]byte, 200_000)}, nil)) // its time limit is 50 s
	select {
	case why := <-lost:
		require.ErrorIs(t, why, transport.Timeout)
		require.ErrorIs(t, why, syscall.ETIMEDOUT)
	case <-ctx.Done():
		t.Fatal("the connection is believed in still")
	}
}
