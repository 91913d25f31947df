package amqp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A hub or proxy that ends each connection before a device was accepted is dialed as rarely as one
// that cannot be reached.
func TestOneDeviceDialsWhileConnectionsEndAtOnce(t *testing.T) {
	for name, addresses := range map[string]*amqp.Addresses{"CBS": nil,
		"addresses": {Telemetry: "/devices/{device}/messages/events"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				o := h.options()
				dial := o.Network.Dial
				var useless atomic.Bool
				useless.Store(true)
				o.Addresses = addresses
				o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := dial(ctx, network, addr)
					if err != nil || !useless.Load() {
						return c, err
					}
					var cut sync.Once // cuts soon after the first begin, which the hub does not get
					return &filter{c, func(_ uint16, p wire.Performative) bool {
						_, begin := p.(*wire.Begin)
						if begin {
							cut.Do(func() { time.AfterFunc(10*time.Millisecond, func() { _ = c.Close() }) })
						}
						return !begin
					}}, nil
				}
				mux := amqp.NewMux(o)
				var all []*device.Client
				for i := range 200 {
					creds := h.device(t, fmt.Sprintf("fleet-%d", i))
					if addresses != nil {
						creds = h.brokered(t, creds)
					}
					c, err := device.New(creds, mux, nil)
					require.NoError(t, err)
					defer c.Close()
					require.NoError(t, c.Start())
					all = append(all, c)
				}
				time.Sleep(5 * time.Minute)
				dials := h.dials.Swap(0)
				t.Logf("200 devices, 5 minutes: %d dials", dials)
				require.Less(t, dials, int32(100))
				useless.Store(false)
				began := time.Now()
				each(all, func(_ int, c *device.Client) {
					if err := c.Open(t.Context()); err != nil {
						t.Error(err)
					}
				})
				require.EqualValues(t, 1, h.dials.Load())
				require.Less(t, time.Since(began), 13*time.Second) // the longest delay and its spread
			})
		})
	}
}

// A link that breaks often, but brings messages each time, is dialed again at once.
func TestAMuxOnALinkThatFlapsAndBringsMessagesIsNotPaused(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		dial := o.Network.Dial
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err == nil {
				time.AfterFunc(2*time.Second, func() { _ = c.Close() })
			}
			return c, err
		}
		mux := amqp.NewMux(o)
		var all []*device.Client
		for i := range 4 {
			c, err := device.New(h.device(t, fmt.Sprintf("fleet-%d", i)), mux, &device.Options{ReconnectSpread: -1})
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Start())
			all = append(all, c)
		}
		began := time.Now()
		for i := range 300 {
			require.NoError(t, all[i%len(all)].Send(t.Context(), numbered(i)))
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		t.Logf("300 messages in %v, %d dials", took, h.dials.Load())
		require.Less(t, took, 40*time.Second) // 30 without a loss
	})
}

// A hub or proxy that takes the tokens of devices and then ends each connection is dialed as
// rarely.
func TestDevicesWaitWhileConnectionsEndSoonAfterTheyAreAccepted(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		dial := o.Network.Dial
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err == nil {
				time.AfterFunc(time.Second, func() { _ = c.Close() })
			}
			return c, err
		}
		mux := amqp.NewMux(o)
		for i := range 200 {
			c, err := device.New(h.device(t, fmt.Sprintf("fleet-%d", i)), mux, nil)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Start())
		}
		time.Sleep(5 * time.Minute)
		dials := h.dials.Load()
		t.Logf("200 devices, 5 minutes: %d dials", dials)
		require.Less(t, dials, int32(60))
	})
}

// A callback that calls runtime.Goexit, as t.FailNow does, fails only the dial that called it, and
// leaves nothing behind.
func TestAFunctionThatEndsItsGoroutine(t *testing.T) {
	type exits struct {
		options func(h *hub, o *amqp.Options, exit func()) // makes a callback exit
		creds   func(c *transport.Credentials, exit func())
		caller  bool // the callback runs on the goroutine of Mux.Dial, which must end
	}
	for name, x := range map[string]exits{
		"Dial": {options: func(_ *hub, o *amqp.Options, exit func()) {
			dial := o.Network.Dial
			o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				exit()
				return dial(ctx, network, addr)
			}
		}},
		"TLS": {options: func(h *hub, o *amqp.Options, exit func()) {
			o.Network.Plaintext, o.Network.TLS, o.Network.Dial = false, h.ClientTLS(), h.Dial(testbroker.PortAMQPS)
			o.Network.TLS.VerifyConnection = func(tls.ConnectionState) error { exit(); return nil }
		}},
		"Tunnel": {options: func(_ *hub, o *amqp.Options, exit func()) { o.Network.Tunnel = exitTunnel(exit) }},
		"token, of the connection": {options: func(_ *hub, o *amqp.Options, _ func()) {
			o.Addresses = &amqp.Addresses{Telemetry: "/devices/{device}/messages/events"}
		}, creds: func(c *transport.Credentials, exit func()) {
			*c = *asUser(t, c, c)
			token := c.Token
			c.Token = func(ctx context.Context) (transport.Token, error) { exit(); return token(ctx) }
		}},
		"token": {caller: true, creds: func(c *transport.Credentials, exit func()) {
			sign := c.Sign
			c.Sign = func(ctx context.Context, text []byte) ([]byte, error) { exit(); return sign(ctx, text) }
		}},
	} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, others on the connection: %v", name, others), func(t *testing.T) {
				bubble(t, func(t *testing.T, h *hub) {
					var armed atomic.Bool
					exit := func() {
						if armed.Swap(false) {
							runtime.Goexit()
						}
					}
					o := h.options()
					if x.options != nil {
						x.options(h, o, exit)
					}
					var sockets atomic.Int32
					dial := o.Network.Dial
					o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						c, err := dial(ctx, network, addr)
						if err == nil {
							sockets.Add(1)
							c = &counted{Conn: c, open: &sockets}
						}
						return c, err
					}
					mux := amqp.NewMux(o)
					creds := *h.CredsWith(t, "")
					if x.creds != nil {
						x.creds(&creds, exit)
					}
					var other *running
					if others {
						if !x.caller {
							return // no dial is made then
						}
						other = start(t, mux, h.device(t, "other"))
					}
					armed.Store(true)
					began := time.Now()
					var err error
					returned, over := false, make(chan struct{})
					go func() {
						defer close(over)
						_, err = mux.Dial(t.Context(), &transport.Config{Creds: &creds, Window: 1, Queue: 1, Sink: &sink{}})
						returned = true
					}()
					<-over
					require.False(t, armed.Load())
					require.Less(t, time.Since(began), time.Second)
					require.True(t, returned)
					require.Contains(t, []transport.Kind{transport.Network, transport.Unauthorized}, transport.KindOf(err), "%v", err)
					require.ErrorContains(t, err, "runtime.Goexit")
					if other == nil {
						require.Zero(t, sockets.Load())
					}
					r := start(t, mux, &creds)
					r.requireSends("x")
					if other != nil {
						other.cancel()
						<-other.over
						r.requireSends("y")
					}
					r.cancel()
					<-r.over
					require.Zero(t, sockets.Load(), "the one that exited is still counted")
				})
			})
		}
	}
}

// counted is a connection that counts the open connections.
type counted struct {
	net.Conn
	open   *atomic.Int32
	closed sync.Once
}

func (c *counted) Close() error {
	c.closed.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// exitTunnel is a tunnel whose Open calls runtime.Goexit.
type exitTunnel func()

func (exitTunnel) Port(bool) string { return "5672" }

func (exit exitTunnel) Open(_ context.Context, c net.Conn, _ netopt.Peer) (net.Conn, error) {
	exit()
	return c, nil
}

// The methods of an error may panic, as those of a nil pointer do. The dial of a Mux runs on a
// goroutine of its own, so that a panic there would end the process.
func TestAnErrorWhoseMethodsPanicFailsADial(t *testing.T) {
	var none *os.PathError
	for name, set := range map[string]func(n *netopt.Options){
		"Dial": func(n *netopt.Options) {
			n.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, none }
		},
		"Dial, no connection": func(n *netopt.Options) {
			n.Plaintext = true
			n.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, nil }
		},
		"Dial, panics": func(n *netopt.Options) {
			n.Dial = func(context.Context, string, string) (net.Conn, error) { panic(none) }
		},
		"Proxy": func(n *netopt.Options) {
			n.Proxy = func(*url.URL, netopt.DialFunc) (netopt.DialFunc, error) { return nil, none }
		},
		"Tunnel": func(n *netopt.Options) { n.Tunnel = failTunnel{none} },
		"TLS": func(n *netopt.Options) {
			n.TLS.VerifyConnection = func(tls.ConnectionState) error { return none }
		},
		"RootCAs": func(n *netopt.Options) {
			n.RootCAs = func(context.Context, error) (*x509.CertPool, error) { return nil, none }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				o := h.options()
				o.Network.Plaintext, o.Network.TLS, o.Network.Dial = false, h.ClientTLS(), h.Dial(testbroker.PortAMQPS)
				set(&o.Network)
				_, err := amqp.NewMux(o).Dial(t.Context(), &transport.Config{Creds: h.CredsWith(t, ""), Window: 1, Queue: 1,
					Sink: &sink{}})
				require.NotNil(t, transport.Find(err))
				require.NotErrorIs(t, err, os.ErrNotExist)
				require.NotEmpty(t, err.Error())
				if name == "Dial, no connection" {
					require.ErrorContains(t, err, "options: Dial returned no connection")
				}
			})
		})
	}
}

type failTunnel struct{ err error }

func (failTunnel) Port(bool) string { return "5671" }

func (f failTunnel) Open(context.Context, net.Conn, netopt.Peer) (net.Conn, error) { return nil, f.err }

// hole is a network that loses all packets while it is shut: a dial gets no answer then. Otherwise
// a dial takes half a second.
type hole struct {
	shut  atomic.Bool
	dials atomic.Int32 // dials begun
	cut   atomic.Int32 // dials given up while the network was open
}

func (n *hole) options(h *hub) *amqp.Options {
	o := h.options()
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.dials.Add(1)
		if n.shut.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		select {
		case <-time.After(500 * time.Millisecond):
			return dial(ctx, network, addr)
		case <-ctx.Done():
			n.cut.Add(1)
			return nil, ctx.Err()
		}
	}
	return o
}

// In an outage that loses packets a dial hangs instead of failing. There is one dial for all
// devices, and no device cancels the dial of another one.
func TestOneDeviceDialsDuringASilentOutage(t *testing.T) {
	for _, spread := range []time.Duration{0, 30 * time.Second} {
		t.Run(fmt.Sprint("spread ", spread), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				const n, outage = 1000, 100 * time.Second
				var network hole
				mux := amqp.NewMux(network.options(h))
				var all []*device.Client
				for i := range n {
					c, err := device.New(h.device(t, fmt.Sprintf("fleet-%d", i)), mux, &device.Options{ReconnectSpread: spread})
					require.NoError(t, err)
					defer c.Close()
					all = append(all, c)
				}
				each(all, func(_ int, c *device.Client) {
					if err := c.Open(t.Context()); err != nil {
						t.Error(err)
					}
				})
				require.EqualValues(t, 1, network.dials.Swap(0))
				network.shut.Store(true)
				h.Drop("")
				time.Sleep(outage)
				during := network.dials.Swap(0)
				network.shut.Store(false)
				began := time.Now()
				var mu sync.Mutex
				var first, last time.Duration
				each(all, func(i int, c *device.Client) {
					if err := c.Send(t.Context(), numbered(i)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if first == 0 {
						first = time.Since(began)
					}
					last = time.Since(began)
				})
				t.Logf("%d dials in %v; then %d, of which %d were cut; the first device back after %v, the last after %v", during,
					outage, network.dials.Load(), network.cut.Load(), first, last)
				require.LessOrEqual(t, during, int32(8), "20 s each, the waits between them, and one that a device had begun")
				require.Zero(t, network.cut.Load())
				require.LessOrEqual(t, network.dials.Load(), int32(2))
				require.Less(t, first, 55*time.Second, "what is left of a dial, and the longest wait between two")
				require.Less(t, last, first+time.Minute, "and each by its own policy")
			})
		})
	}
}

// The device that began a dial is closed: the others continue to wait for that dial, and see no
// failure.
func TestTheDeviceThatDialsLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		var network hole
		mux := amqp.NewMux(network.options(h))
		first, err := device.New(h.CredsWith(t, ""), mux, nil)
		require.NoError(t, err)
		require.NoError(t, first.Start())
		synctest.Wait()
		require.EqualValues(t, 1, network.dials.Load())
		began := time.Now()
		joined := make(chan *running, 3)
		for i := range cap(joined) {
			creds := h.device(t, fmt.Sprintf("dev-%d", 2+i))
			go func() {
				r, err := tryStart(t, mux, creds)
				if err != nil {
					t.Error(err)
				}
				joined <- r
			}()
		}
		synctest.Wait()
		time.Sleep(200 * time.Millisecond)
		require.NoError(t, first.Close())
		require.Equal(t, 200*time.Millisecond, time.Since(began), "its Close does not wait for the dial either")
		for range cap(joined) {
			require.NotNil(t, <-joined)
		}
		require.Less(t, time.Since(began), 600*time.Millisecond)
		require.EqualValues(t, 1, network.dials.Load())
		require.EqualValues(t, 1, h.Connections(""))
	})
}

// When all waiters have left, the dial leaves nothing behind, whether it hangs or is about to
// succeed.
func TestAllWaitersOfADialLeave(t *testing.T) {
	for _, after := range []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
		bubble(t, func(t *testing.T, h *hub) {
			var network hole
			network.shut.Store(after > time.Second)
			mux := amqp.NewMux(network.options(h))
			var group sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for i := range 10 {
				creds := h.device(t, fmt.Sprintf("quitter-%d", i))
				group.Go(func() {
					if s, err := mux.Dial(ctx, &transport.Config{Creds: creds, Window: 1, Queue: 1, Sink: &sink{}}); err == nil {
						_ = s.Run(ctx)
					}
				})
			}
			time.Sleep(after)
			cancel()
			group.Wait()
			synctest.Wait()
			require.Zero(t, h.Connections(""), "after %v", after)
			network.shut.Store(false)
			start(t, mux, h.CredsWith(t, "")).requireSends("x")
		})
	}
}

// A device with a host that does not exist does not keep the others from dialing their host.
func TestADeviceWithAWrongHostDoesNotDelayOthers(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		dial := o.Network.Dial
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if host, _, _ := net.SplitHostPort(addr); host != h.HostName() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host,
					IsNotFound: true}}
			}
			return dial(ctx, network, addr)
		}
		mux := amqp.NewMux(o)
		lost := *h.device(t, "lost")
		lost.Host = "typo.example.test"
		bad, err := device.New(&lost, mux, nil)
		require.NoError(t, err)
		defer bad.Close()
		require.NoError(t, bad.Start())
		time.Sleep(time.Minute)
		good, err := device.New(h.CredsWith(t, ""), mux, nil)
		require.NoError(t, err)
		defer good.Close()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		require.NoError(t, good.Open(ctx))
		require.Less(t, time.Since(began), time.Second)
	})
}

// A dial that fails is not repeated by each device that waits for it, whatever its cause, and each
// device learns that cause.
func TestTheFailureOfADialIsShared(t *testing.T) {
	ahead := func() time.Time { return time.Now().Add(10 * time.Minute) }
	for name, row := range map[string]struct {
		err   error
		kinds []transport.Kind // that the devices report
		most  int32            // dials in 5 minutes
		clock func() time.Time
	}{
		"an unset clock": {&transport.Error{Kind: transport.ClockUnset, Err: errors.New("1970")},
			[]transport.Kind{transport.ClockUnset}, 30, nil},
		"an unset clock, not the system's": {&transport.Error{Kind: transport.ClockUnset, Err: errors.New("1970")},
			[]transport.Kind{transport.ClockUnset}, 30, ahead},
		"a violation": {operr.Violation("nonsense"), []transport.Kind{transport.Protocol}, 60, nil},
		"damage, perhaps": {tls.RecordHeaderError{Msg: "nonsense"}, []transport.Kind{transport.Network, transport.Protocol},
			10, nil},
		"a certificate":                   {x509.UnknownAuthorityError{}, []transport.Kind{transport.Untrusted}, 1, nil},
		"a certificate, by another clock": {x509.UnknownAuthorityError{}, []transport.Kind{transport.Untrusted}, 1, ahead},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				o := h.options()
				dial := o.Network.Dial
				var healthy atomic.Bool
				var dials atomic.Int32
				o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if healthy.Load() {
						return dial(ctx, network, addr)
					}
					dials.Add(1)
					time.Sleep(time.Second)
					return nil, row.err
				}
				mux := amqp.NewMux(o)
				var mu sync.Mutex
				kinds := map[transport.Kind]int{}
				var all []*device.Client
				for i := range 200 {
					creds := h.device(t, fmt.Sprintf("fleet-%d", i))
					creds.Now = row.clock
					c, err := device.New(creds, mux, &device.Options{
						OnStatus: func(s device.Status) {
							if s.Err != nil {
								mu.Lock()
								defer mu.Unlock()
								kinds[transport.KindOf(s.Err)]++
							}
						}})
					require.NoError(t, err)
					defer c.Close()
					require.NoError(t, c.Start())
					all = append(all, c)
				}
				time.Sleep(5 * time.Minute)
				mu.Lock()
				seen := maps.Clone(kinds)
				mu.Unlock()
				t.Logf("200 devices, 5 minutes: %d dials, %v", dials.Load(), seen)
				require.LessOrEqual(t, dials.Load(), row.most)
				require.ElementsMatch(t, row.kinds, slices.Collect(maps.Keys(seen)))
				healthy.Store(true)
				each(all, func(_ int, c *device.Client) {
					if err := c.Open(t.Context()); err != nil {
						t.Error(err)
					}
				})
				require.EqualValues(t, 1, h.dials.Load())
			})
		})
	}
}

// A callback for the login of a Mux that takes too long fails the dial in time. The error, which
// other devices also get, names the callbacks and not the hub.
func TestACallbackForTheLoginOfAMuxHangs(t *testing.T) {
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	late := func(context.Context) error { time.Sleep(22 * time.Second); return nil }
	for name, row := range map[string]struct {
		auth amqp.Auth
		hang func(ctx context.Context) error
		took time.Duration
	}{
		"token source":       {amqp.AuthPlain, hangs, 20 * time.Second},
		"token source, late": {amqp.AuthPlain, late, 22 * time.Second},
		"certificate":        {amqp.AuthExternal, hangs, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				o := h.options()
				o.Auth, o.Addresses = row.auth, &amqp.Addresses{Telemetry: "/devices/dev-1/messages/events"}
				if row.auth == amqp.AuthExternal {
					o.Network.Plaintext = false
					o.Network.Certificate = func(ctx context.Context) (*tls.Certificate, error) { return nil, row.hang(ctx) }
				}
				mux, user := amqp.NewMux(o), h.CredsWith(t, "")
				failed := make(chan error, 2)
				began := time.Now()
				for _, id := range []string{"a", "b"} {
					creds := &transport.Credentials{Host: user.Host, DeviceID: id, UserName: "dev-1@sas.hub",
						Token: func(ctx context.Context) (transport.Token, error) {
							if err := row.hang(ctx); err != nil {
								return transport.Token{}, err
							}
							return user.NewToken(context.Background())
						}}
					go func() { failed <- try(t, mux, creds) }()
				}
				for range 2 {
					err := <-failed
					require.ErrorIs(t, err, transport.Timeout)
					require.ErrorContains(t, err, "the token source or Network.Certificate took longer than")
				}
				require.Equal(t, row.took, time.Since(began))
				require.Zero(t, h.dials.Load())
			})
		})
	}
}

// A device whose clock shows another time does not take over a failure that a clock may have
// caused, nor do others take over its failure.
func TestADeviceWithAnotherClockDials(t *testing.T) {
	for _, kind := range []transport.Kind{transport.ClockUnset, transport.Untrusted} {
		for _, own := range []string{"first", "second"} {
			t.Run(own+" "+kind.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, h *hub) {
					o := h.options()
					dial := o.Network.Dial
					var dials atomic.Int32
					o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						if dials.Add(1) > 1 {
							return dial(ctx, network, addr)
						}
						time.Sleep(time.Second)
						return nil, &transport.Error{Kind: kind, Err: errors.New("1970")}
					}
					mux := amqp.NewMux(o)
					creds := map[string]*transport.Credentials{"first": h.device(t, "first"), "second": h.device(t, "second")}
					creds[own].Now = func() time.Time { return time.Now().Add(10 * time.Minute) }
					failed := make(chan error, 1)
					go func() { failed <- try(t, mux, creds["first"]) }()
					synctest.Wait()
					began := time.Now()
					require.NoError(t, try(t, mux, creds["second"]))
					require.Equal(t, time.Second, time.Since(began))
					if err := <-failed; err != nil { // else it has joined the connection of the second one
						require.ErrorIs(t, err, kind)
					}
				})
			})
		}
	}
}
