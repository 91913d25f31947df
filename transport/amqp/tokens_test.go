package amqp

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker"
	hubfault "github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// connected returns a connection to a hub, and its network.
func connected(t *testing.T) (*hubfixture.Broker, *connection, *memconn.Conn) {
	h := hubfixture.New(t)
	var socket net.Conn
	o, err := (&Options{Network: netopt.Options{Plaintext: true, Dial: func(ctx context.Context, network,
		addr string) (c net.Conn, err error) {
		socket, err = h.Dial(testbroker.PortAMQP)(ctx, network, addr)
		return socket, err
	}}}).resolve()
	require.NoError(t, err)
	creds := h.CredsWith(t, "")
	l, err := o.prove(t.Context(), creds)
	require.NoError(t, err)
	c, err := o.connect(t.Context(), creds, &l, 0, new(learnt))
	require.NoError(t, err)
	t.Cleanup(c.close)
	return h, c, socket.(*memconn.Conn)
}

// token returns the audience and the token of a new device, signed with key or else the device's
// key.
func token(t *testing.T, h *hubfixture.Broker, id, key string) (audience, text string) {
	d, err := h.AddDevice(id)
	require.NoError(t, err)
	if key == "" {
		key = d.PrimaryKey
	}
	sign, err := transport.SharedKey(key)
	require.NoError(t, err)
	creds := &transport.Credentials{Host: d.HostName, DeviceID: id, Sign: sign}
	made, err := creds.NewToken(t.Context())
	require.NoError(t, err)
	return creds.Resource(), made.Text.Reveal()
}

// A refusal that arrives before the loss of the links or of the connection is the result, not the
// loss.
func TestARefusalBeforeALossCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := connected(t)
		_ = c.Fail(net.ErrClosed)
		alive, dead := &tokenLinks{dead: make(chan struct{})}, &tokenLinks{dead: make(chan struct{})}
		dead.lose(&ConditionError{What: "session"})
		for range 100 {
			for _, links := range []*tokenLinks{alive, dead} {
				id, _, answered := c.tokens.expect()
				c.tokens.answer(id, tokenAnswer{status: 401})
				a, err := c.tokens.wait(t.Context(), links, answered)
				require.NoError(t, err)
				require.Equal(t, 401, a.status)
			}
		}
	})
}

// The answer to a token goes to the device that put it, for any order of answers.
func TestEachDeviceGetsTheAnswerToItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, _ := connected(t)
		const n = 20
		verdicts := make([]error, n)
		for i := range n {
			id, key := fmt.Sprintf("dev-a%d", i), ""
			if i%2 == 1 {
				key = hubfixture.WrongKey
			}
			audience, text := token(t, h, id, key)
			h.Inject(hubfault.Fault{Kind: hubfault.SlowToken, Delay: time.Duration(n-i) * time.Second, Device: id})
			go func() { verdicts[i] = c.tokens.put(t.Context(), audience, text, nil) }()
			synctest.Wait()
		}
		time.Sleep(2 * n * time.Second)
		synctest.Wait()
		for i, err := range verdicts {
			if i%2 == 0 {
				require.NoError(t, err, "device %d, which has the right key", i)
				continue
			}
			var refused *TokenError
			require.ErrorAs(t, err, &refused, "device %d, which has a wrong key", i)
		}
	})
}

// A peer that rejects the message with the token gives no answer: its reason counts at once.
func TestARejectedTokenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, _ := connected(t)
		audience, text := token(t, h, "dev-a", "")
		h.Inject(hubfault.Fault{Kind: hubfault.SwallowToken})
		answered := make(chan error, 1)
		go func() { answered <- c.tokens.put(t.Context(), audience, text, nil) }()
		synctest.Wait()
		began := time.Now()
		tokenDelivery{c.tokens, "put-token-1"}.Settled(&wire.Rejected{Error: &wire.Error{
			Condition: "amqp:unauthorized-access", Description: "no"}})
		err := <-answered
		require.Zero(t, time.Since(began))
		require.EqualError(t, err, "token ended or refused by the hub: amqp:unauthorized-access (no)")
		kind, _, _ := protocolKind(err)
		require.Equal(t, transport.Unauthorized, kind)
	})
}

// A peer that does not take the message with the token gives no answer either, and may take another
// one.
func TestATokenThatIsNotTaken(t *testing.T) {
	for _, state := range []wire.DeliveryState{&wire.Released{}, &wire.Modified{}} {
		synctest.Test(t, func(t *testing.T) {
			h, c, _ := connected(t)
			audience, text := token(t, h, "dev-a", "")
			h.Inject(hubfault.Fault{Kind: hubfault.SwallowToken})
			answered := make(chan error, 1)
			go func() { answered <- c.tokens.put(t.Context(), audience, text, nil) }()
			synctest.Wait()
			began := time.Now()
			tokenDelivery{c.tokens, "put-token-1"}.Settled(state)
			err := <-answered
			require.Zero(t, time.Since(began))
			require.Equal(t, transport.Unavailable, protocol.Error(err).Kind, "%v", err)
		})
	}
}

// A device that leaves while its token is being sent does not close the links on which other
// devices wait.
func TestADeviceThatLeavesKeepsTheTokenLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, _ := connected(t)
		audience, text := token(t, h, "dev-slow", "")
		slow := h.Inject(hubfault.Fault{Kind: hubfault.SlowToken, Delay: 5 * time.Second, Device: "dev-slow", Times: -1})
		answered := make(chan error, 1)
		go func() { answered <- c.tokens.put(t.Context(), audience, text, nil) }()
		synctest.Wait()
		links := c.tokens.links
		require.NotNil(t, links)
		gone, leave := context.WithCancel(t.Context())
		leave()
		for range 20 { // it may still be sent
			c.tokens.gate <- struct{}{}
			_, err := c.tokens.send(gone, tokenDelivery{c.tokens, "other"}, &wire.Message{Value: "x", HasValue: true})
			<-c.tokens.gate
			if err == nil {
				continue
			}
			require.Same(t, links, c.tokens.links)
		}
		require.NoError(t, <-answered)
		require.Equal(t, 1, slow.Fired(), "it was put again, over other links")
	})
}

// For a network that accepts no data, at most twice amqpclient.HighWater and a transfer of each
// device are buffered.
func TestBufferedBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, socket := connected(t)
		audience, text := token(t, h, "dev-a", "")
		require.NoError(t, c.tokens.put(t.Context(), audience, text, nil))
		s, end := serving(t, h, c, "dev-a")
		items := make([]transport.Item, 60)
		for i := range items {
			items[i] = transport.Item{Tag: uint16(i), Msg: &transport.Message{Body: make([]byte, 60<<10)}}
		}
		s.Send(items[:1])
		synctest.Wait()
		c.window.size.Store(mostWindow) // as after a fast start
		socket.Hold(true)
		socket.SetSendBuffer(1 << 10)
		s.Send(items[1:]) // does not block: the end of one device does not close the socket
		synctest.Wait()
		waiting := c.Pending()
		socket.Reset()
		end()
		require.Greater(t, waiting, amqpclient.HighWater/2)
		require.LessOrEqual(t, waiting, 2*amqpclient.HighWater+70<<10)
	})
}

// Close sends the pending bytes.
func TestAnOrderlyCloseIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, socket := connected(t)
		audience, text := token(t, h, "dev-a", "")
		require.NoError(t, c.tokens.put(t.Context(), audience, text, nil))
		s, end := runs(t, h, c, "dev-a", false)
		s.Send([]transport.Item{{Msg: &transport.Message{Body: []byte("first")}}})
		synctest.Wait()
		socket.SetRate(100_000)
		socket.SetSendBuffer(1 << 10)
		go s.Send([]transport.Item{{Tag: 1, Msg: &transport.Message{Body: make([]byte, 5000)}}})
		synctest.Wait()
		c.close()
		require.NoError(t, h.WaitMessages(t.Context(), 2))
		end()
	})
}

// serving returns a session on a shared connection, and a function that ends it.
func serving(t *testing.T, h *hubfixture.Broker, c *connection, id string) (s *session, end func()) {
	return runs(t, h, c, id, true)
}

// runs is serving on a connection that is shared or not.
func runs(t *testing.T, h *hubfixture.Broker, c *connection, id string, shared bool) (s *session, end func()) {
	creds := &transport.Credentials{Host: h.HostName(), DeviceID: id}
	addr, err := c.opt.addresses(creds)
	require.NoError(t, err)
	s = newSession(&transport.Config{Creds: creds, Window: 100, Sink: quiet{}}, c.opt, c, &login{auth: AuthCBS}, addr)
	s.shared, s.release = shared, func() {}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.Run(ctx)
	}()
	return s, func() {
		cancel()
		<-over
	}
}

// quiet is a sink that ignores everything.
type quiet struct{}

func (quiet) Done(uint16, error)               {}
func (quiet) Reply(uint32, transport.Reply)    {}
func (quiet) Deliver(*transport.Delivery) bool { return false }
