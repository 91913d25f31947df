package nexthub_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// dialScripted dials a hub that plays script behind the birth, whose nonce it gets. The channel is
// closed when the script has ended.
func dialScripted(t *testing.T, script func(l *testkit.MQTTLink, nonce string)) (transport.Session, <-chan struct{},
	error) {
	n := memconn.NewNetwork("hub.example.test:8883")
	t.Cleanup(func() { _ = n.Close() })
	played := make(chan struct{})
	go func() {
		defer close(played)
		c, err := n.Accept()
		if err != nil {
			return
		}
		l := testkit.NewMQTTLink(t, c)
		l.Expect(0x10)
		l.Send(0x20, 3, 0, 0, 0)
		id := l.Expect(0x82).Body[:2]
		l.Send(0x90, 4, id[0], id[1], 0, 1)
		_, nonce, _ := strings.Cut(string(l.Expect(0x30).Body), "\x09\x00\x10") // the correlation data
		script(l, nonce[:16])
	}()
	tr := mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: n.DialContext, Plaintext: true}, Dialect: &nexthub.Hub{}})
	s, err := tr.Dial(t.Context(), &transport.Config{Sink: ignore{}, Queue: 16, Progress: func() {},
		Creds: &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}})
	return s, played, err
}

// fromHub returns a PUBLISH with QoS 1, or 0 without an id.
func fromHub(id byte, feature, properties, body string) []byte {
	properties = string([]byte{byte(len(properties))}) + properties
	topic := testkit.MQTTText(nextwire.Down("dev-1", feature))
	if id == 0 {
		return testkit.MQTTBytes(0x30, topic, properties, body)
	}
	return testkit.MQTTBytes(0x32, topic, string([]byte{0, id}), properties, body)
}

// typed returns the properties of a message of this type.
func typed(correlation, typ string) string {
	return "\x09" + testkit.MQTTText(correlation) +
		"\x26" + testkit.MQTTText(nextwire.PropertyType) + testkit.MQTTText(typ)
}

func TestOtherMessagesDoNotProlongTheWaitForTheBirthAck(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		began := time.Now()
		_, played, err := dialScripted(t, func(l *testkit.MQTTLink, _ string) {
			go func() { _, _ = l.Drain() }()
			for range 600 {
				if _, err := l.Write(fromHub(0, nextwire.FeatureTwin, "", "")); err != nil {
					return
				}
				time.Sleep(700 * time.Millisecond)
			}
		})
		require.ErrorIs(t, err, transport.Timeout)
		require.Equal(t, nextwire.StepTimeout, time.Since(began))
		<-played
	})
}

// All that were read are acknowledged before the connection ends, so the next one gets further.
func TestMessagesBeyondTheBoundBeforeTheBirthAckComeOnTheNextConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var packets []testkit.MQTTPacket
		s, played, err := dialScripted(t, func(l *testkit.MQTTLink, nonce string) {
			for id := range byte(4) {
				l.Send(fromHub(id+1, "other", "", strings.Repeat("x", 200<<10))...)
			}
			l.Send(fromHub(0, nextwire.FeaturePresence, typed(nonce, nextwire.TypeBirthAck), "")...)
			packets, _ = l.Drain()
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, s.Run(ctx), mqttwire.ErrBehind)
		<-played
		var ids []byte
		for _, p := range packets[:len(packets)-1] {
			require.EqualValues(t, 0x40, p.First)
			ids = append(ids, p.Body[1])
		}
		require.Equal(t, []byte{1, 2}, ids)
		require.EqualValues(t, 0xe0, packets[len(packets)-1].First)
	})
}

// Without an end of the session, sixteen of them would stop all answers to the hub.
func TestAnAnswerWithoutAPUBACKEndsTheSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, played, err := dialScripted(t, func(l *testkit.MQTTLink, nonce string) {
			l.Send(fromHub(0, nextwire.FeaturePresence, typed(nonce, nextwire.TypeBirthAck), "")...)
			probe := nextwire.Append(nil, &nextwire.Probe{Method: "m"})
			l.Send(fromHub(1, nextwire.FeatureMethods, typed(nonce, nextwire.TypeProbe), string(probe))...)
			for {
				p, err := l.Next()
				if err != nil {
					return
				}
				if p.First == 0xc0 {
					_, _ = l.Write([]byte{0xd0, 0})
				}
			}
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		for len(ran) == 0 {
			time.Sleep(s.Info().KeepAlive)
			s.Do(&transport.Request{Op: transport.OpPing})
			synctest.Wait()
		}
		require.ErrorIs(t, <-ran, transport.Timeout)
		<-played
	})
}
