package mqtt

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"github.com/stretchr/testify/require"
)

// The library leaves it at 0. It stands in the same place whether the packet's length takes 2 bytes or 3.
func TestConnectTellsTheKeepAlive(t *testing.T) {
	for _, o := range []Options{
		{},
		{KeepAlive: time.Second},
		{KeepAlive: 65535 * time.Second},
		{KeepAlive: 258 * time.Second, ProductInfo: strings.Repeat("#", 4096), ModelID: "dtmi:" + strings.Repeat("#", 4000)},
	} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			o.Plaintext, o.Dial = true, h.net.DialContext
			s, k, ctx, cancel := dial(t, &o, func() {
				c, err := h.net.Accept()
				require.NoError(t, err)
				p, err := packets.ReadPacket(c)
				require.NoError(t, err)
				connect := p.(*packets.ConnectPacket)
				resolved, err := o.resolve()
				require.NoError(t, err)
				require.Equal(t, resolved.KeepAlive, time.Duration(connect.Keepalive)*time.Second)
				require.Equal(t, resolved.userName(testCreds(t)), connect.Username)
				require.NotEmpty(t, connect.Password)
				require.Equal(t, "dev-1", connect.ClientIdentifier)
				newLink(t, c).send(typeConnack<<4, 2, 0, 0)
			})
			run(t, s, k, ctx, cancel)
		})
	}
}

// pinged plays the hub: it counts pings and answers the first of them, up to answers.
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

// A hub hangs up when it hears nothing, whatever it says itself; and a client must hear something now and then, whatever it says.
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
				for i := range 61 { // a little more than 10 minutes
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

// That the hub says something else is no answer.
func TestOtherPacketsDoNotAnswerAPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		pinged(l, 0)
		began := time.Now()
		for i := range 20 {
			time.Sleep(4 * time.Second)
			_, _ = l.Write(publishBytes("devices/dev-1/messages/devicebound/", uint16(i+1), "x")) // the last one meets the end
		}
		require.ErrorIs(t, <-r.ran, errNoPong)
		require.Equal(t, defaultKeepAlive+defaultPingTimeout, time.Since(began))
	})
}

// What a burst of traffic needs is given back.
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
		require.NotNil(t, c.many, "much came")
		l.send(typePingresp<<4, 0)
		synctest.Wait()
		require.Nil(t, c.many)
		require.Nil(t, c.pending)
		require.False(t, c.flushing)
		require.Equal(t, 10, goroutines())
	})
}

// goroutines counts those of the library, of connections and of sessions.
func goroutines() int {
	buf := make([]byte, 1<<20)
	n := 0
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "eclipse/paho") || strings.Contains(g, "mqtt.(*conn)") || strings.Contains(g, "mqtt.(*session).Run") {
			n++
		}
	}
	return n
}
