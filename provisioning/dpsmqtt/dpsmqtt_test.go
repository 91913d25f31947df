package dpsmqtt_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	agent = "Hubline" // the client name that the service sees
	first = 2         // the id of a session's first request
)

const (
	ownKey    = "icIMXjwja1qYKoscSejYuXU0CWOBN4+SKhfWq13SBnA="
	assigning = `{"operationId":"4.d0.a/b c","status":"assigning"}`
	assigned  = `{"operationId":"op-1","status":"assigned","registrationState":{` +
		`"assignedHub":"hub1.example.test","deviceId":"dev-1","status":"assigned"}}`
)

// reply is what the peer does with one request: PUBLISH packets with these topics behind the
// prefix, in which ID stands for the request's id, and the PUBACK where "PUBACK" stands.
type reply struct {
	topic, body string
}

// peer is a service that answers as written.
type peer struct {
	network *memconn.Network
	replies [][]reply

	users, passwords, topics, bodies []string
	qos                              []byte
	pubacks                          int
}

// serve serves connections until the network is closed.
func (p *peer) serve() {
	for {
		c, err := p.network.Accept()
		if err != nil {
			return
		}
		p.session(c)
		_ = c.Close()
	}
}

func (p *peer) session(c net.Conn) {
	var in []byte
	buf := make([]byte, 4096)
	for {
		h, ok, err := mqttwire.Next(in)
		if err != nil {
			return
		}
		if !ok || len(in) < h.Size+h.Body {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			in = append(in, buf[:n]...)
			continue
		}
		body := in[h.Size : h.Size+h.Body]
		in = in[h.Size+h.Body:]
		switch h.Type {
		case mqttwire.Connect:
			var texts []string
			for rest := body[10:]; len(rest) > 0; {
				n := int(rest[0])<<8 | int(rest[1])
				texts, rest = append(texts, string(rest[2:2+n])), rest[2+n:]
			}
			p.users = append(p.users, texts[0]+" "+texts[1])
			if len(texts) > 2 {
				p.passwords = append(p.passwords, texts[2])
			}
			_, _ = c.Write([]byte{0x20, 2, 0, 0})
		case mqttwire.Subscribe:
			_, _ = c.Write([]byte{0x90, 3, body[0], body[1], 1})
		case mqttwire.Publish:
			m, err := mqttwire.ReadPublish(h.Flags, body)
			if err != nil {
				return
			}
			p.qos = append(p.qos, m.QoS)
			p.topics, p.bodies = append(p.topics, string(m.Topic)), append(p.bodies, string(m.Body))
			_, id, _ := strings.Cut(string(m.Topic), "$rid=")
			id, _, _ = strings.Cut(id, "&")
			if len(p.replies) == 0 {
				return
			}
			replies := p.replies[0]
			p.replies = p.replies[1:]
			for _, r := range replies {
				if r.topic == "PUBACK" {
					_, _ = c.Write(mqttwire.AppendAck(nil, mqttwire.Puback, m.ID, 0))
					continue
				}
				topic := strings.ReplaceAll(r.topic, "ID", id)
				o := mqttwire.Outgoing{QoS: 1, Topic: len(topic), Body: len(r.body)}
				_, _ = c.Write(append(mqttwire.AppendID(append(mqttwire.AppendPublish(nil, &o), topic...), 77), r.body...))
			}
		case mqttwire.Puback:
			p.pubacks++
		case mqttwire.Disconnect:
			return
		default: // no other packet matters
		}
	}
}

func identity(t testing.TB) *provisioning.Identity {
	sign, err := transport.SharedKey(ownKey)
	require.NoError(t, err)
	return &provisioning.Identity{Endpoint: "dps.example.test", IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001",
		Sign: sign}
}

// with runs f in fake time against a peer.
func with(t *testing.T, p *peer, f func(t *testing.T, o *netopt.Options)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		p.network = memconn.NewNetwork("dps.example.test:1883")
		done := make(chan struct{})
		go func() {
			p.serve()
			close(done)
		}()
		f(t, &netopt.Options{Plaintext: true, Dial: p.network.DialContext})
		_ = p.network.Close()
		<-done
		synctest.Wait() // for goroutines that are about to end
		require.Equal(t, before, testkit.Goroutines())
	})
}

func register(t *testing.T, o *netopt.Options, opt *provisioning.Options) (*provisioning.Assignment, error) {
	t.Helper()
	c, err := provisioning.New(identity(t), dpsmqtt.New(o), opt)
	require.NoError(t, err)
	return c.Register(t.Context())
}

const res = "$dps/registrations/res/"

func TestPackets(t *testing.T) {
	p := &peer{replies: [][]reply{
		{{"PUBACK", ""}, {res + "202/?$rid=ID&retry-after=3", assigning}},
		{{"PUBACK", ""}, {res + "200/?$rid=ID", assigned}},
	}}
	with(t, p, func(t *testing.T, o *netopt.Options) {
		o.ProductInfo = "shelf/1"
		began := time.Now()
		a, err := register(t, o, nil)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, "dev-1", a.DeviceID)
		require.Equal(t, []string{"reg-0001 0ne00ABCDEF/registrations/reg-0001/api-version=2019-03-31&ClientVersion=" +
			string(texts.AppendEscaped(nil, agent+" shelf/1"))}, p.users)
		require.Equal(t, []string{"$dps/registrations/PUT/iotdps-register/?$rid=" + strconv.Itoa(first),
			"$dps/registrations/GET/iotdps-get-operationstatus/?$rid=" + strconv.Itoa(first+1) +
				"&operationId=4.d0.a%2Fb%20c"}, p.topics)
		require.Equal(t, []string{`{"registrationId":"reg-0001"}`, ""}, p.bodies)
		synctest.Wait() // the peer has read all
		require.Equal(t, 2, p.pubacks, "answers are acknowledged")
		require.Equal(t, []byte{1, 1}, p.qos, "QoS of register and poll")
	})
	require.Contains(t, p.passwords[0], "SharedAccessSignature sr=0ne00ABCDEF%2Fregistrations%2Freg-0001&sig=")
}

// A service that stops reading holds an exchange no longer than the time limit, and leaves nothing
// behind.
func TestAServiceThatStopsReading(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		near, far := net.Pipe() // no buffer: a write waits for the reader
		go func() {
			buf := make([]byte, 1024)
			_, _ = far.Read(buf)
			_, _ = far.Write([]byte{0x20, 2, 0, 0})
			_, _ = far.Read(buf)
			_, _ = far.Write([]byte{0x90, 3, 0, 1, 1})
		}()
		began := time.Now()
		_, err := register(t, &netopt.Options{Plaintext: true,
			Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }},
			&provisioning.Options{Policy: retrypolicy.NoRetry{}, RequestTimeout: 5 * time.Second,
				Payload: []byte(`"` + strings.Repeat("x", 60<<10) + `"`)})
		require.Equal(t, transport.Timeout, transport.KindOf(errors.Unwrap(errors.Unwrap(err))), "%v", err)
		require.LessOrEqual(t, time.Since(began), 6*time.Second)
		_ = far.Close()
		synctest.Wait()
		require.Equal(t, before, testkit.Goroutines())
	})
}

func TestWrongOptionsAreInvalid(t *testing.T) {
	for field, o := range map[string]*netopt.Options{
		"Addr": {Addr: "x"}, "WriteTimeout": {WriteTimeout: -1}, "ProductInfo": {ProductInfo: strings.Repeat("x", 5000)},
	} {
		_, err := register(t, o, nil)
		require.ErrorIs(t, err, transport.Invalid, field)
		require.ErrorContains(t, err, field)
	}
}
