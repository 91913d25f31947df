package mqtt

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport/netopt"
)

// The library leaves the keep-alive at 0. Its field follows a packet length of 2 or of 3 bytes.
func TestConnectHasTheKeepAlive(t *testing.T) {
	for _, o := range []Options{
		{},
		{KeepAlive: time.Second},
		{KeepAlive: 65535 * time.Second},
		{KeepAlive: 258 * time.Second, Network: netopt.Options{ProductInfo: strings.Repeat("#", 4096)},
			ModelID: "dtmi:" + strings.Repeat("#", 4000)},
	} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			o.Network.Plaintext, o.Network.Dial = true, h.net.DialContext
			s, k, ctx, cancel := dial(t, &o, func() {
				c, err := h.net.Accept()
				require.NoError(t, err)
				p, err := packets.ReadPacket(c)
				require.NoError(t, err)
				connect := p.(*packets.ConnectPacket)
				resolved, err := o.resolve()
				require.NoError(t, err)
				require.Equal(t, resolved.KeepAlive, time.Duration(connect.Keepalive)*time.Second)
				require.Equal(t, helloOf(t, &o, testCreds(t)).UserName, connect.Username)
				require.NotEmpty(t, connect.Password)
				require.Equal(t, "dev-1", connect.ClientIdentifier)
				newLink(t, c).send(typeConnack<<4, 2, 0, 0)
			})
			run(t, s, k, ctx, cancel)
		})
	}
}

// pinged plays the hub: it counts pings and answers the first ones, answers of them at most.
func pinged(l *link, answers int) (pings *int) {
	pings = new(int)
	go func() {
		for {
			p, err := l.next()
			if err != nil {
				return
			}
			if p.kind == typePingreq {
				if *pings++; *pings <= answers {
					_, _ = l.Write([]byte{typePingresp << 4, 0}) // fails at the end
				}
			}
		}
	}()
	return pings
}

// The client pings when either direction is quiet: a hub closes a connection on which it receives
// nothing, and a client must receive something regularly.
func TestPingsAreSentUnlessBothSidesTalk(t *testing.T) {
	for name, tc := range map[string]struct {
		up, down bool
		pings    int
	}{
		"nobody talks":     {false, false, 10},
		"the device talks": {true, false, 10},
		"the hub talks":    {false, true, 10},
		"both talk":        {true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				r, l := start(t, h, h.options())
				pings := pinged(l, 1000)
				for i := range 61 { // 10 minutes and 10 s
					time.Sleep(10 * time.Second)
					if tc.up {
						r.send("x")
					}
					if tc.down {
						l.publish("devices/dev-1/messages/devicebound/", uint16(i+1), "x")
					}
				}
				synctest.Wait()
				require.Equal(t, tc.pings, *pings)
				require.Empty(t, r.ran)
			})
		})
	}
}

func TestAPingThatIsNotAnsweredEndsTheSession(t *testing.T) {
	for _, answers := range []int{0, 1, 5} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start(t, h, h.options())
			pings := pinged(l, answers)
			began := time.Now()
			require.ErrorIs(t, <-r.ran, errNoPong)
			require.Equal(t, time.Duration(answers+1)*defaultKeepAlive+defaultPingTimeout, time.Since(began))
			require.Equal(t, answers+1, *pings)
		})
	}
}

// Any packet from the hub answers a ping. Pings continue all the same.
func TestAnyPacketAnswersAPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		pings := pinged(l, 0)
		began := time.Now()
		for i := range 20 { // 80 s; the first ping is sent after 60 s
			time.Sleep(4 * time.Second)
			l.publish("devices/dev-1/messages/devicebound/", uint16(i+1), "x")
		}
		require.ErrorIs(t, <-r.ran, errNoPong)
		require.Equal(t, 2*defaultKeepAlive+defaultPingTimeout, time.Since(began))
		require.Equal(t, 2, *pings)
	})
}

// PingTimeout may be longer than the keep-alive; it does not delay the next ping.
func TestPingsComeInTimeWhateverThePingTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := h.options()
		o.KeepAlive, o.PingTimeout = time.Second, 20*time.Second
		r, l := start(t, h, o)
		pings := pinged(l, 10)
		began := time.Now()
		require.ErrorIs(t, <-r.ran, errNoPong)
		require.Equal(t, 31*time.Second, time.Since(began))
		require.Equal(t, 11, *pings)
	})
}

// slowLink transfers 2 KB a second.
type slowLink struct {
	net.Conn
	wrote time.Time // the end of the last write
}

func (c *slowLink) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / 2000)
	c.wrote = time.Now()
	return c.Conn.Write(p)
}

// startSlow is start over a slowLink.
func startSlow(t *testing.T) (*running, *link, *slowLink) {
	h := newHub(t)
	o := h.options()
	dial, line := o.Network.Dial, new(slowLink)
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		line.Conn = c
		return line, err
	}
	r, l := start(t, h, o)
	return r, l, line
}

// A message that takes two minutes to write over a link that makes progress does not end the
// session, though a ping waits behind it.
func TestAPingStuckBehindALargeMessageIsNoTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, l, _ := startSlow(t)
		pings := pinged(l, 1000)
		r.send(strings.Repeat("x", 250_000))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Empty(t, r.ran)
		require.Equal(t, 8, *pings, "one queued after 60 s and written after 125 s, then one a minute until 545 s")
	})
}

// PingTimeout starts when all pending bytes are written.
func TestASlowLinkThatDiesIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, l, line := startSlow(t)
		pings := pinged(l, 0)
		began := time.Now()
		r.send(strings.Repeat("x", 250_000))
		require.ErrorIs(t, <-r.ran, errNoPong)
		require.Equal(t, 1, *pings)
		require.Equal(t, defaultPingTimeout, time.Since(line.wrote))
		require.Less(t, time.Since(began), 126*time.Second+defaultPingTimeout)
	})
}

// Writes that the network buffers and no peer answers are no sign of life.
func TestADeadConnectionIsFoundThoughTheDeviceSends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		pinged(l, 0)
		began := time.Now()
		for range 7 {
			time.Sleep(10 * time.Second)
			r.send("x")
		}
		require.ErrorIs(t, <-r.ran, errNoPong)
		require.Equal(t, defaultKeepAlive+defaultPingTimeout, time.Since(began))
	})
}

// An idle session returns the buffers of a burst.
func TestASessionThatIsIdleAgainHasNoBuffersAndNoFlusher(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		bodies := make([]string, 200)
		for i := range bodies {
			bodies[i] = strings.Repeat("x", 100)
		}
		r.send(bodies...)
		var acks []byte
		for range bodies {
			id := l.expect(typePublish).id()
			acks = append(acks, typePuback<<4, 2, byte(id>>8), byte(id))
		}
		l.send(acks...)
		synctest.Wait()
		require.Len(t, r.sink.tags(), len(bodies))
		c := r.Session.(*session).conn
		require.NotNil(t, c.largeBuf, "much came")
		l.send(typePingresp<<4, 0)
		synctest.Wait()
		require.Nil(t, c.largeBuf)
		require.Nil(t, c.pending)
		require.False(t, c.flushing)
		require.Equal(t, 10, goroutines())
	})
}

// goroutines counts the goroutines of the library, of connections and of sessions.
func goroutines() int {
	buf := make([]byte, 1<<20)
	n := 0
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "eclipse/paho") || strings.Contains(g, "mqtt.(*conn)") || strings.Contains(g,
			"mqtt.(*session).Run") {
			n++
		}
	}
	return n
}
