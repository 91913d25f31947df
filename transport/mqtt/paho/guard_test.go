package paho

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// peer is a connection from which a reader's bytes come.
type peer struct {
	net.Conn
	io.Reader
}

func (p peer) Read(b []byte) (int, error) { return p.Reader.Read(b) }
func (peer) Close() error                 { return nil }

// readAll reads packets with paho's codec until the first error.
func readAll(r io.Reader) (types []byte, err error) {
	c := peer{Reader: r}
	g := newGuard(bare{c}, time.Second)
	for {
		p, err := packets.ReadPacket(g)
		if err != nil {
			return types, g.failure()
		}
		switch p := p.(type) {
		case *packets.ConnackPacket:
			types = append(types, packets.Connack)
		case *packets.PublishPacket:
			types = append(types, packets.Publish)
		case *packets.SubackPacket:
			if len(p.ReturnCodes) != 1 {
				panic("paho would index by the number of codes")
			}
			types = append(types, packets.Suback)
		case *packets.PubackPacket:
			types = append(types, packets.Puback)
		case *packets.PingrespPacket:
			types = append(types, packets.Pingresp)
		case *packets.DisconnectPacket:
			types = append(types, packets.Disconnect)
		default:
			panic("a packet that is not for clients")
		}
	}
}

const connack = "20 02 0000 "

// A PUBACK that acknowledges nothing is not passed on.
func TestTheGuardPassesOnWhatAHubMaySend(t *testing.T) {
	all := connack + "90 03 0007 01 40 02 0007 D0 00 30 03 0001'a' 32 06 0001'a' 0001'x' 3B 06 0001'a' 0001'x' E0 00"
	types, err := readAll(iotest.OneByteReader(bytes.NewReader(texts.FromHex(all))))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, []byte{packets.Connack, packets.Suback, packets.Pingresp, packets.Publish,
		packets.Publish, packets.Publish, packets.Disconnect}, types)

	large := mqttwire.AppendHeader(texts.FromHex(connack), mqttwire.Publish, 0, maxIncoming)
	large = append(large, append([]byte{0, 1, 'a'}, make([]byte, maxIncoming-3)...)...)
	types, err = readAll(bytes.NewReader(large))
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, types, 2)
}

func TestTheGuardEndsWhatPahoWouldNotSurvive(t *testing.T) {
	for name, text := range map[string]string{
		"another packet first":           "D0 00",
		"a second CONNACK":               connack + connack,
		"CONNACK with reserved flags":    "20 02 0200",
		"SUBACK with two codes":          connack + "90 04 0001 01 01",
		"SUBACK without a code":          connack + "90 02 0001",
		"SUBACK with id 0":               connack + "90 03 0000 01",
		"PUBACK with id 0":               connack + "40 02 0000",
		"PUBREC":                         connack + "50 02 0001",
		"SUBSCRIBE":                      connack + "82 06 0001 0001'a' 00",
		"a type that does not exist":     connack + "F0 00",
		"PUBLISH with QoS 2":             connack + "34 06 0001'a' 0001'x'",
		"PUBLISH with QoS 3":             connack + "36 06 0001'a' 0001'x'",
		"PUBLISH whose topic is too big": connack + "30 03 0009'a'",
		"a length of five bytes":         connack + "30 80 80 80 80 01",
		"a length of 256 MB":             "30 FF FF FF 7F",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readAll(bytes.NewReader(texts.FromHex(text)))
			require.ErrorAs(t, err, new(mqttwire.Violation))
		})
	}
	_, err := readAll(bytes.NewReader(texts.FromHex("20 02 0007")))
	require.ErrorContains(t, err, "CONNACK 7", "paho takes it for success")
	_, err = readAll(bytes.NewReader(texts.FromHex("20 03 008400")))
	require.ErrorIs(t, err, transport.Unsupported)
	_, err = readAll(bytes.NewReader(texts.FromHex("20 03 000000")))
	require.ErrorAs(t, err, new(mqttwire.Violation))
	_, err = readAll(strings.NewReader(string(texts.FromHex(connack)) + "0"))
	require.ErrorIs(t, err, io.EOF)
}

// No input of the peer makes paho's codec panic or read a packet that the guard does not know.
func FuzzGuard(f *testing.F) {
	f.Add(texts.FromHex(connack + "40 02 0007 90 03 0007 01 D0 00"))
	f.Add(texts.FromHex(connack + "32 06 0001'a' 0001'x' E0 00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := readAll(bytes.NewReader(b)); err == nil {
			t.Fatal("the end is missing")
		}
	})
}

// A message belongs to its caller again when it is acknowledged, so an acknowledgement counts only
// when paho has given the whole packet to the network.
func TestAnAcknowledgementCountsOnceAndAfterItsMessage(t *testing.T) {
	near, far := memconn.Pair("near", "far")
	defer far.Close()
	g := newGuard(bare{near}, time.Second)
	defer g.Close()
	require.False(t, g.acknowledge(7))
	publish := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	publish.Qos, publish.MessageID, publish.TopicName, publish.Payload = 1, 7, "a", make([]byte, 1000)
	require.NoError(t, publish.Write(g))
	require.False(t, g.acknowledge(8))
	require.True(t, g.acknowledge(7))
	require.False(t, g.acknowledge(7))
	require.NoError(t, publish.Write(g))
	_, err := g.check(mqttwire.Header{Type: mqttwire.Connack, Size: 2, Body: 2}, []byte{0, 0})
	require.NoError(t, err)
	_, err = g.check(mqttwire.Header{Type: mqttwire.Suback, Size: 2, Body: 3}, []byte{0, 7, 1})
	require.ErrorContains(t, err, "answered a PUBLISH with SUBACK")
}

// bare is a conn without layers.
type bare struct{ net.Conn }

func (bare) Progress() (at time.Time, waits bool) { return time.Time{}, false }
func (bare) Explain(e error) error                { return e }
func (bare) Expires() time.Time                   { return time.Time{} }
func (b bare) Cut()                               { _ = b.Conn.Close() }
