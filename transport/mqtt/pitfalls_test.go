package mqtt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// writeTimeout is the default of netopt.Options.WriteTimeout.
const writeTimeout = 10 * time.Second

// The tests of this file cover known pitfalls of the library; the comments name them.

// The library would repeat a refused CONNECT with MQTT 3.1 on a second connection.
func TestARefusedConnectIsNotRepeatedWithAnOlderProtocol(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		connections := 0
		go func() {
			for {
				c, err := h.net.Accept()
				if err != nil {
					return
				}
				connections++
				l := newLink(t, c)
				connect := l.expect(1)
				require.Equal(t, "\x00\x04MQTT\x04\xC0\x00\x3C", string(connect.body[:10]),
					"3.1.1, session kept, user name and password, 60 s")
				l.send(typeConnack<<4, 2, 0, 5)
				_ = l.Close()
			}
		}()
		_, err := New(h.options()).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
		require.ErrorIs(t, err, transport.Unauthorized)
		synctest.Wait()
		require.Equal(t, 1, connections)
	})
}

// For codes above 5 the library returns no error and reports a connection.
func TestEveryConnackCodeButZeroIsARefusal(t *testing.T) {
	for code := 1; code < 256; code++ {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			go func() {
				l := h.accept()
				l.send(typeConnack<<4, 2, 0, byte(code))
				_, _ = l.drain()
			}()
			_, err := New(h.options()).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			e := transport.Find(err)
			require.NotNil(t, e)
			require.Equal(t, wire.ConnackMeaning(byte(code)).Kind, e.Kind)
			require.Equal(t, transport.Connection, e.Scope)
			require.Equal(t, transport.OpDial, e.Op)
			refusal, ok := errors.AsType[*ConnackError](err)
			require.True(t, ok)
			require.Equal(t, byte(code), refusal.Code)
		})
	}
}

// The library takes no context: a dial would last as long as the network blocks.
func TestTheEndOfCtxEndsTheDialAtOnce(t *testing.T) {
	stages := map[string]func(h *hub, o *Options){
		"while the network hangs": func(h *hub, _ *Options) { h.net.Hang(true) },
		"in the TLS handshake":    func(_ *hub, o *Options) { o.Network.Plaintext = false },
		"before the CONNACK":      func(*hub, *Options) {},
	}
	for name, prepare := range stages {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				o := h.options()
				prepare(h, o)
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(3*time.Second, cancel)
				began := time.Now()
				_, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
				require.Equal(t, 3*time.Second, time.Since(began))
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, transport.Connection, transport.Find(err).Scope)
				requireNothingLeft(t, h)
			})
		})
	}
}

// requireNothingLeft fails if the client's end of the last connection is open.
func requireNothingLeft(t *testing.T, h *hub) {
	t.Helper()
	if c := h.net.Last(); c != nil {
		_, err := c.Write([]byte{0})
		require.ErrorIs(t, err, net.ErrClosed)
	}
}

// The library has its own limit, 30 s by default; only the caller's context may limit the dial.
func TestOnlyTheContextLimitsTheDial(t *testing.T) {
	for _, limit := range []time.Duration{7 * time.Second, 7 * time.Hour} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			_, err := New(h.options()).Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.Equal(t, limit, time.Since(began))
			require.ErrorIs(t, err, transport.Timeout)
			requireNothingLeft(t, h)
		})
	}
}

// ctx may end at the moment in which the library becomes connected.
func TestCtxThatEndsWithTheConnackLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		ctx, cancel := context.WithCancel(context.Background())
		o := h.options()
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := h.net.DialContext(ctx, network, addr)
			return &readHook{c, cancel}, err
		}
		go func() {
			l := h.accept()
			l.send(typeConnack<<4, 2, 0, 0)
			_, _ = l.drain()
		}()
		_, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
		require.ErrorIs(t, err, context.Canceled)
		requireNothingLeft(t, h)
	})
}

// readHook calls a function after a read.
type readHook struct {
	net.Conn
	hook func()
}

func (c *readHook) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.hook()
	}
	return n, err
}

// Messages that are queued at the hub follow the CONNACK at once, before the caller can subscribe
// or start Run.
func TestNothingIsReportedBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var l *link
		s, k, ctx, cancel := dial(t, h.options(), func() {
			l = h.accept()
			l.send(append([]byte{typeConnack << 4, 2, 1, 0}, publishBytes("devices/dev-1/messages/devicebound/%24.mid=m1", 7,
				"early")...)...)
		})
		time.Sleep(time.Second)
		require.Empty(t, k.messages)
		run(t, s, k, ctx, cancel)
		synctest.Wait()
		require.Len(t, k.messages, 1)
		require.Equal(t, "early", string(k.messages[0].Body))
	})
}

// A CONNACK may come in pieces.
func TestAConnackInSingleBytesIsAccepted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		s, k, ctx, cancel := dial(t, h.options(), func() {
			l := h.accept()
			for _, b := range []byte{typeConnack << 4, 2, 0, 0} {
				l.send(b)
				time.Sleep(time.Second)
			}
		})
		run(t, s, k, ctx, cancel)
	})
}

// The library compares the text of a read error with that of a closed connection, and never reports
// a loss with that text.
func TestALossThatLooksLikeOurOwnCloseIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, _ := start(t, h, h.options())
		synctest.Wait()
		require.NoError(t, h.net.Last().Close()) // the socket below conn is closed by other code
		synctest.Wait()
		select {
		case err := <-r.ran:
			require.ErrorIs(t, err, transport.Network)
		default:
			t.Fatal("the loss was not noticed")
		}
	})
}

// The library writes PINGREQ without a deadline; behind a full buffer it never checks the ping's
// time-out.
func TestAPeerThatStopsReadingIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(1000)
		r, _ := start(t, h, h.options())
		began := time.Now()
		body := strings.Repeat("x", 400)
		r.send(body, body, body, body)
		err := <-r.ran
		require.ErrorIs(t, err, transport.Timeout)
		require.Equal(t, writeTimeout, time.Since(began))
		require.NotContains(t, err.Error(), "closed")
	})
}

// The same when the only packet to send is a ping: the network's buffers are already full.
func TestAPeerThatStopsReadingIsFoundByPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		synctest.Wait()
		h.net.Last().SetBuffer(1) // PINGREQ has two bytes
		began := time.Now()
		err := <-r.ran
		require.ErrorIs(t, err, transport.Timeout)
		require.Equal(t, defaultKeepAlive+writeTimeout, time.Since(began))
		_ = l
	})
}

func TestASilentPeerIsFoundByPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, _ := start(t, h, h.options())
		began := time.Now()
		err := <-r.ran
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorIs(t, err, errNoPong)
		require.Equal(t, defaultKeepAlive+defaultPingTimeout, time.Since(began))
	})
}

// An idle connection stays up while pings are answered.
func TestAnIdleSessionLivesOnPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		var pings atomic.Int64
		go func() {
			for {
				p, err := l.next()
				if err != nil {
					return
				}
				if p.kind == 12 {
					pings.Add(1)
					_, _ = l.Write([]byte{typePingresp << 4, 0}) // fails at the end
				}
			}
		}()
		time.Sleep(time.Hour)
		require.Empty(t, r.ran)
		require.InDelta(t, 60, pings.Load(), 5)
		r.cancel()
		synctest.Wait()
	})
}

// A SUBACK with more codes than filters makes the library's reader panic, which ends the process. A
// SUBACK for another request's id would confuse it.
func TestASubackThatDoesNotFitEndsTheSession(t *testing.T) {
	for name, answer := range map[string]func(id uint16) []byte{
		"with too many codes": func(id uint16) []byte { return []byte{typeSuback << 4, 5, byte(id >> 8), byte(id), 1, 1, 1} },
		"with far more codes": func(id uint16) []byte {
			return append([]byte{typeSuback << 4, 100, byte(id >> 8), byte(id)}, make([]byte, 98)...)
		},
		"without codes":        func(id uint16) []byte { return []byte{typeSuback << 4, 2, byte(id >> 8), byte(id)} },
		"for an id never used": func(id uint16) []byte { return []byte{typeSuback << 4, 3, 9, 9, 1} },
		"as PUBACK":            func(id uint16) []byte { return []byte{typePuback << 4, 2, byte(id >> 8), byte(id)} },
		"for a PUBLISH instead": func(id uint16) []byte {
			return []byte{typeSuback << 4, 3, byte((id - 1) >> 8), byte(id - 1), 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				r, l := start(t, h, h.options())
				r.send("first")
				l.expect(typePublish)
				r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
				l.send(answer(l.expect(8).id())...)
				require.ErrorIs(t, <-r.ran, transport.Network)
				require.Empty(t, r.sink.replies)
				require.Empty(t, r.sink.done)
			})
		})
	}
}

// The library's token of a refused filter completes without an error.
func TestARefusedSubscriptionIsReplied(t *testing.T) {
	for code, kind := range map[byte]transport.Kind{0x80: transport.Unavailable, 3: transport.Protocol,
		0xFF: transport.Protocol} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start(t, h, h.options())
			r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
			id := l.expect(8).id()
			l.send(typeSuback<<4, 3, byte(id>>8), byte(id), code)
			synctest.Wait()
			require.Len(t, r.sink.replies, 1)
			err := r.sink.replies[0].Err
			require.ErrorIs(t, err, kind)
			require.Equal(t, transport.Operation, transport.Find(err).Scope)
			refusal, ok := errors.AsType[*SubackError](err)
			require.True(t, ok)
			require.Equal(t, SubackError{Filter: "devices/dev-1/messages/devicebound/#", Code: code}, *refusal)
			require.Empty(t, r.ran, "the session lives")
		})
	}
}

// Codes stand in the order of the packet's filters. The library takes the filters as a map, so the
// order is random.
func TestARefusalNamesTheRefusedFilter(t *testing.T) {
	for refused := range 2 {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start(t, h, h.options())
			r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages | transport.Methods})
			subscribe := l.expect(8)
			filters := subscribe.filters()
			require.ElementsMatch(t, []string{"devices/dev-1/messages/devicebound/#", "$iothub/methods/POST/#"}, filters)
			answer := subscribe.granted()
			answer[4+refused] = 0x80
			l.send(answer...)
			synctest.Wait()
			require.Len(t, r.sink.replies, 1)
			refusal, ok := errors.AsType[*SubackError](r.sink.replies[0].Err)
			require.True(t, ok)
			require.Equal(t, SubackError{Filter: filters[refused], Code: 0x80}, *refusal)
		})
	}
}

// The library allocates an announced length, up to 256 MB, before it reads.
func TestAHugePacketIsRefusedBeforeItIsAllocated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l.send(typePublish<<4, 0xFF, 0xFF, 0xFF, 0x7F)
		require.ErrorIs(t, <-r.ran, transport.Network)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	})
}

// The library has no option for DUP. It resends nothing by itself because it gets every message
// with QoS 0.
func TestOnlyResentMessagesCarryDUP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		again := &transport.Message{Body: []byte("again")}
		fresh := &transport.Message{Body: []byte("new")}
		r.Send([]transport.Item{{Tag: 4, Again: true, Msg: again}, {Tag: 5, Msg: fresh}})
		first, second := l.expect(typePublish), l.expect(typePublish)
		require.Equal(t, byte(2|8), first.flags)
		require.Equal(t, byte(2), second.flags)
	})
}

// stopInPublish is a logger that blocks the library inside Publish, at a known log message.
type stopInPublish struct{ reached, release chan struct{} }

func (l *stopInPublish) Println(v ...any) {
	if len(v) > 1 && v[1] == "sending publish message, topic:" {
		close(l.reached)
		<-l.release
	}
}

func (*stopInPublish) Printf(string, ...any) {}

// A caller inside Publish is blocked after a loss until a timer fires, 30 s by default.
func TestALossInTheMiddleOfPublishHoldsRunForAMomentOnly(t *testing.T) {
	stop := new(stopInPublish)
	paho.DEBUG = stop
	defer func() { paho.DEBUG = paho.NOOPLogger{} }()
	bubble(t, func(t *testing.T) {
		stop.reached, stop.release = make(chan struct{}), make(chan struct{})
		h := newHub(t)
		s, k, ctx, cancel := dial(t, h.options(), func() { h.welcome() })
		r := run(t, s, k, ctx, cancel)
		go r.send("caught in Publish")
		<-stop.reached
		began := time.Now()
		h.net.Last().Reset()
		<-s.lost
		close(stop.release)
		require.ErrorIs(t, <-r.ran, transport.Network)
		require.Equal(t, libraryWait, time.Since(began))
	})
}

// Tokens of a persistent session never complete after a loss, and a caller inside Publish is
// blocked until a timer fires. Neither may block Run.
func TestRunReturnsSoonAfterALossInTheMiddleOfSending(t *testing.T) {
	for cut := range 10 {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start(t, h, h.options())
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				r.send(make([]string, 1000)...)
			}()
			for range cut * 40 {
				l.expect(typePublish)
			}
			began := time.Now()
			require.NoError(t, l.Close())
			require.ErrorIs(t, <-r.ran, transport.Network)
			require.LessOrEqual(t, time.Since(began), libraryWaitWanted)
			<-sent
			r.send("after the end")
			r.Do(&transport.Request{ID: 1, Op: transport.OpTwinGet})
			synctest.Wait()
			require.Empty(t, r.sink.done)
			require.Len(t, r.Session.(*session).sending, 1, "nobody sends any more")
		})
	}
}

const libraryWaitWanted = 300 * time.Millisecond

// slowSink is slow, which shows which goroutine waits for another.
type slowSink struct {
	*sink
	entered chan struct{}
}

func (k *slowSink) Done(tag uint16, err error) {
	close(k.entered)
	time.Sleep(5 * time.Second)
	k.sink.Done(tag, err)
}

// The library reports a loss before its goroutines have ended; one of them may be about to call the
// sink.
func TestRunWaitsForTheLastCallOfTheSink(t *testing.T) {
	for name, end := range map[string]func(h *hub, cancel func()){
		"after a loss":             func(h *hub, _ func()) { h.net.Last().Reset() },
		"after its context's end ": func(_ *hub, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				var l *link
				s, k, ctx, cancel := dial(t, h.options(), func() { l = h.welcome() })
				slow := &slowSink{k, make(chan struct{})}
				s.cfg.Sink = slow
				r := run(t, s, k, ctx, cancel)
				r.send("one")
				l.puback(l.expect(typePublish).id())
				<-slow.entered
				end(h, cancel)
				r.send("notices a reset")
				require.Error(t, <-r.ran)
				require.Len(t, k.tags(), 1)
				require.Zero(t, k.late)
			})
		})
	}
}

// stubborn is the library on a machine so slow that its goroutines do not take a packet in time.
type stubborn struct {
	paho.Client
	fails int
}

func (c *stubborn) Publish(topic string, qos byte, retained bool, payload any) paho.Token {
	if c.fails == 0 {
		return c.Client.Publish(topic, qos, retained, payload)
	}
	c.fails--
	return &failedToken{}
}

type failedToken struct{ paho.DummyToken }

func (*failedToken) Error() error { return errors.New("publish was broken by timeout") }

// A Publish that the library did not take in time leaves the packet unsent: the message would stay
// in flight for ever. Its publication must not be applied to the next packet.
func TestAMessageTheLibraryDidNotTakeIsHandedOverAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var l *link
		s, k, ctx, cancel := dial(t, h.options(), func() { l = h.welcome() })
		s.client = &stubborn{Client: s.client, fails: 2}
		r := run(t, s, k, ctx, cancel)
		r.send("stubborn", "next")
		a, b := l.expect(typePublish), l.expect(typePublish)
		require.Equal(t, "stubborn", a.payload())
		require.Equal(t, "next", b.payload())
		require.Equal(t, []uint16{packetID(0), packetID(1)}, []uint16{a.id(), b.id()})
		l.puback(a.id())
		l.puback(b.id())
		synctest.Wait()
		require.Equal(t, []uint16{0, 1}, k.tags())
		require.Empty(t, s.conn.expected)
	})
}

// While a message is stuck in the network, the library takes one more and refuses the others after
// libraryWait. Each must be sent with its own id.
func TestMessagesBehindAStuckOneKeepTheirIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		synctest.Wait()
		h.net.Last().SetBuffer(10)
		r.Send([]transport.Item{{Tag: 7, Msg: &transport.Message{Body: []byte("stuck")}}})
		synctest.Wait()
		require.True(t, inside("mqtt.(*conn).writeThrough("))
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			r.Do(&transport.Request{ID: 1, Op: transport.OpTwinGet})
			r.Do(&transport.Request{ID: 2, Op: transport.OpTwinGet}) // the library refuses it
			r.Send([]transport.Item{
				{Tag: 1, Msg: &transport.Message{Body: []byte("a")}},
				{Tag: 2, Again: true, Msg: &transport.Message{Body: []byte("b")}},
				{Tag: 3, Msg: &transport.Message{Body: []byte("c")}},
			})
		}()
		time.Sleep(3*libraryWait + libraryWait/2)
		for _, want := range []struct {
			flags byte
			tag   uint16
			body  string
		}{{qos1Flag, 7, "stuck"}, {}, {qos1Flag, 1, "a"}, {qos1Flag | dupFlag, 2, "b"}, {qos1Flag, 3, "c"}} {
			p := l.expect(typePublish)
			require.Equal(t, want.flags, p.flags)
			if want.flags != 0 {
				require.Equal(t, packetID(want.tag), p.id())
				require.Equal(t, want.body, p.payload())
				l.puback(p.id())
			}
		}
		<-sent
		synctest.Wait()
		require.Equal(t, []uint16{7, 1, 2, 3}, r.sink.tags())
		c := r.Session.(*session).conn
		require.Empty(t, c.expected)
		require.Zero(t, c.announced)
		require.Zero(t, c.unacked)
	})
}

// Pending bytes must be written before the DISCONNECT, and the library closes right after it.
func TestDisconnectFollowsPendingMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetLatency(func() time.Duration { return time.Millisecond })
		r, l := start(t, h, h.options())
		r.send("one", "two", "three")
		synctest.Wait()
		r.cancel()
		packets, err := l.drain()
		require.Equal(t, io.EOF, err)
		require.Len(t, packets, 4)
		require.Equal(t, byte(typeDisconnect), packets[3].kind)
	})
}

// DISCONNECT is the last packet [MQTT-3.14.4-2]: the device loop may settle a delivery between it
// and the library's Close.
func TestNothingGoesOutBehindDisconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		c := r.Session.(*session).conn
		_, err := c.Write([]byte{typeDisconnect << 4, 0})
		require.NoError(t, err)
		r.Do(&transport.Request{Op: transport.OpSettle, Outcome: transport.Accept, Ref: []byte{1, 2}})
		require.NoError(t, c.Close())
		packets, err := l.drain()
		require.Equal(t, io.EOF, err)
		require.Equal(t, []packet{{kind: typeDisconnect, body: []byte{}}}, packets)
	})
}

// A stuck peer, to which DISCONNECT cannot be written, must not block disconnect; nor must TLS,
// which waits 5 s to write close_notify.
func TestDisconnectFromAStuckPeerTakesLessThanASecond(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "with TLS": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				o := h.options()
				if secure {
					h.serveTLS(t, o)
				}
				r, _ := start(t, h, o)
				synctest.Wait()
				h.net.Last().SetBuffer(1)
				r.send("stuck")
				time.Sleep(time.Second)
				began := time.Now()
				r.cancel()
				require.Error(t, <-r.ran)
				require.LessOrEqual(t, time.Since(began), time.Second)
			})
		})
	}
}

// With TLS, DISCONNECT is written, but close_notify blocks.
func TestDisconnectIsBoundedWhenOnlyCloseNotifyIsStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memconn.Pair("a", "b")
		defer b.Close()
		c := newConn(&slowCloser{Conn: a}, a, new(session))
		_, _ = c.Write([]byte{typeDisconnect << 4, 0})
		began := time.Now()
		require.NoError(t, c.Close())
		<-c.flushed
		require.LessOrEqual(t, time.Since(began), drainTime)
	})
}

// slowCloser takes 5 s to close unless the socket below is closed.
type slowCloser struct{ *memconn.Conn }

func (c *slowCloser) Close() error {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.Read(make([]byte, 1))
	return nil
}

// Ordered delivery with the library's acknowledgements deadlocks when both ends send much: its
// reader waits for its writer, the writer for the peer, the peer for our reader.
func TestTrafficBothWaysDoesNotLockUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 300
		h := newHub(t)
		h.net.SetBuffer(4 << 10)
		r, l := start(t, h, h.options())
		body := strings.Repeat("x", 5000)
		got := make(chan int)
		go func() { // a hub that does not read while it writes
			count := 0
			for i := range n {
				l.publish("devices/dev-1/messages/devicebound/a=b", uint16(i+1), body)
				for count < i-3 {
					if p, err := l.next(); err != nil {
						break
					} else if p.kind == typePublish {
						count++
						l.puback(p.id())
					}
				}
			}
			for count < n {
				p, err := l.next()
				if err != nil {
					break
				}
				if p.kind == typePublish {
					count++
					l.puback(p.id())
				}
			}
			got <- count
		}()
		for i := range n {
			r.Send([]transport.Item{{Tag: uint16(i), Msg: &transport.Message{Body: []byte(body)}}})
			for len(r.sink.seen()) > 0 {
				r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.takeRef()})
			}
		}
		require.Equal(t, n, <-got)
		synctest.Wait()
		require.Len(t, r.sink.tags(), n)
		require.Len(t, r.sink.messages, n)
	})
}

func (s *sink) seen() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refs
}

func (s *sink) takeRef() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	ref := s.refs[0]
	s.refs = s.refs[1:]
	return ref
}

// The library writes from several goroutines at once, closes twice, and sets deadlines.
func TestTheConnectionToleratesTheLibrary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memconn.Pair("a", "b")
		b.SetBuffer(0)
		c := newConn(a, a, new(session))
		var sent int
		for range 4 {
			go func() {
				for range 100 {
					_, _ = c.Write([]byte("abcd"))
				}
			}()
			sent += 400
		}
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(-time.Hour)))
		got := make([]byte, sent)
		_, err := io.ReadFull(b, got)
		require.NoError(t, err)
		require.Equal(t, bytes.Repeat([]byte("abcd"), 400), got)
		_, _ = c.Write([]byte{typeDisconnect << 4, 0})
		for range 3 {
			go func() { _ = c.Close() }()
		}
		require.NoError(t, c.Close())
		<-c.flushed
		rest, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, []byte{typeDisconnect << 4, 0}, rest)
		_, err = c.Write([]byte("x"))
		require.ErrorIs(t, err, errClosed)
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, errClosed)
		require.NotErrorIs(t, err, net.ErrClosed)
	})
}

// A write error is returned by the next Write and by Read, which must not block.
func TestAWriteErrorReachesReadAndTheNextWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memconn.Pair("a", "b")
		defer b.Close()
		a.SetBuffer(1)
		line := dialer.NewProgressConn(a, time.Second)
		c := newConn(line, line, new(session))
		_, err := c.Write([]byte("too much"))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, c.SetWriteDeadline(time.Time{})) // the library does so after each PUBLISH
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = c.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		<-c.flushed
	})
}

// A link that is slow but makes progress does not count as dead.
func TestASlowLinkIsNotDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := h.options()
		o.KeepAlive = 10 * time.Minute
		r, l := start(t, h, o)
		synctest.Wait()
		h.net.Last().SetBuffer(2000)
		r.send(strings.Repeat("x", 200_000))
		began := time.Now()
		got := 0
		for got < 200_000 {
			n, err := io.ReadFull(l.r, make([]byte, 2000))
			require.NoError(t, err)
			got += n
			time.Sleep(time.Second) // 2 KB/s: 100 s
		}
		require.Greater(t, time.Since(began), 5*writeTimeout)
		require.Empty(t, r.ran)
	})
}

// The pending bytes are bounded: the session publishes no more than the network takes.
func TestPublishingStopsWhileTheNetworkTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(1000)
		var l *link
		s, k, ctx, cancel := dial(t, h.options(), func() { l = h.welcome() })
		r := run(t, s, k, ctx, cancel)
		bodies := make([]string, 100)
		for i := range bodies {
			bodies[i] = strings.Repeat("x", 10_000)
		}
		go r.send(bodies...)
		synctest.Wait()
		s.conn.mu.Lock()
		require.NotNil(t, s.conn.pending)
		pending := len(s.conn.pending.b)
		s.conn.mu.Unlock()
		require.Less(t, pending, highWater+30_000)
		for range bodies {
			l.puback(l.expect(typePublish).id())
		}
		synctest.Wait()
		require.Len(t, k.tags(), len(bodies))
	})
}
