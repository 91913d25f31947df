package amqpfront_test

import (
	"encoding/base64"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const serviceAddress = "/messages/devicebound"

// newService makes a hub with the device dev-1 and a policy of back ends.
func newService(t testing.TB, o *testbroker.Options) (*testbroker.Hub, hubdata.Device, hubdata.Policy) {
	h, d := hubtest.NewHub(t, o)
	p := hubtest.AddPolicy(t, h, "service", hubdata.RightServiceConnect)
	return h, d, p
}

// loginService opens a connection and sends a policy's token.
func loginService(t testing.TB, h *testbroker.Hub, policy hubdata.Policy) *hubtest.Peer {
	t.Helper()
	p := hubtest.DialPeer(t, h)
	require.Equal(t, 200, p.CBS().Put(hubtest.PolicyToken(policy, h.HostName())))
	return p
}

// A policyCase is a token and whether the hub takes it, and which links it opens.
type policyCase struct {
	token  func(p hubdata.Policy) string
	status int
	opens  bool // the link of back ends
	device bool // links of devices
}

func policyCases() map[string]policyCase {
	of := func(sr string) func(p hubdata.Policy) string {
		return func(p hubdata.Policy) string { return hubtest.PolicyToken(p, sr) }
	}
	text := func(key func(p hubdata.Policy) string) func(p hubdata.Policy) string {
		return func(p hubdata.Policy) string {
			until := time.Now().Add(time.Hour).Unix()
			return hubtest.SignBytes("sb%3a%2f%2fhub.example.test%2f", []byte(key(p)), until) + "&skn=" + p.Name
		}
	}
	return map[string]policyCase{
		"host":                       {of("hub.example.test"), 200, true, true},
		"host in capitals":           {of("HUB.Example.Test"), 200, true, true},
		"host and port":              {of("localhost:5950"), 200, true, true},
		"sb":                         {of("sb%3A%2F%2Fhub.example.test%2F"), 200, true, true},
		"amqp in lower-case hex":     {of("amqp%3a%2f%2fhub.example.test%3a5672%2f"), 200, true, true},
		"amqps, not encoded":         {of("amqps://hub.example.test:5671/"), 200, true, true},
		"https":                      {of("https%3A%2F%2Fhub.example.test"), 200, true, true},
		"the path of the link":       {of("hub.example.test%2FMessages%2FdeviceBound"), 200, true, false},
		"a parent of the link":       {of("AMQPS%3A%2F%2Fhub.example.test%2Fmessages"), 200, true, false},
		"the text of the key":        {text(func(p hubdata.Policy) string { return p.PrimaryKey }), 200, true, false},
		"the text of the second key": {text(func(p hubdata.Policy) string { return p.SecondaryKey }), 200, true, false},

		"another path":        {of("sb%3A%2F%2Fhub.example.test%2Fhub%2FConsumerGroups"), 200, false, false},
		"a prefix in letters": {of("hub.example.test%2Fmess"), 200, false, false},
		"all devices":         {of("hub.example.test%2Fdevices"), 200, false, true},
		"another host":        {of("sb%3A%2F%2Fhub2.example.test%2F"), 401, false, false},
		"no host":             {of("%2Fmessages"), 401, false, false},
		"another text": {text(func(p hubdata.Policy) string { return "x" + p.PrimaryKey }),
			401, false, false},
		"expired": {func(p hubdata.Policy) string {
			return hubtest.Sign("hub.example.test", p.PrimaryKey, time.Now().Add(-time.Hour).Unix()) + "&skn=" + p.Name
		}, 401, false, false},
		"another policy": {func(p hubdata.Policy) string {
			return hubtest.Sign("hub.example.test", p.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=nobody"
		}, 401, false, false},
	}
}

// Back ends write the resource of a token in many ways, and some sign with the text of the key.
func TestTokensOfPolicies(t *testing.T) {
	for name, c := range policyCases() {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var refused []event.Event
			h, _ := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
				if e.Kind == event.Refused {
					refused = append(refused, e)
				}
			}})
			policy := hubtest.AddPolicy(t, h, "owner", hubdata.RightAll)
			p := hubtest.DialPeer(t, h)
			m := hubtest.TokenMessage(nil, "anything", c.token(policy))
			m.ApplicationProperties["expiration"] = fmt.Sprint(time.Now().Add(time.Hour).Unix())
			answer := p.CBS().Ask(m)
			require.Equal(t, int32(c.status), answer.ApplicationProperties["status-code"], answer.ApplicationProperties)
			require.NotContains(t, fmt.Sprint(answer.ApplicationProperties), policy.PrimaryKey)
			_, err := p.Session().NewSender(t.Context(), serviceAddress, nil)
			requireOpen(t, c.opens, err)
			_, err = p.Session().NewSender(t.Context(), "/devices/dev-1/messages/events", nil)
			requireOpen(t, c.device, err)
			require.NoError(t, p.Conn.Close())
			synctest.Wait()
			for _, e := range refused {
				require.NotContains(t, e.String(), policy.PrimaryKey)
			}
			if c.opens && c.device {
				require.Empty(t, refused, "a connection that was served is not refused")
			}
		})
	}
}

// requireOpen requires that a link was attached, or refused for lack of a right.
func requireOpen(t *testing.T, open bool, err error) {
	t.Helper()
	if open {
		require.NoError(t, err)
	} else {
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
	}
}

// A link needs the right of its kind.
func TestRightsOfPoliciesOverAMQP(t *testing.T) {
	for right, c := range map[hubdata.Right]policyCase{
		hubdata.RightServiceConnect: {nil, 200, true, false},
		hubdata.RightDeviceConnect:  {nil, 200, false, true},
		hubdata.RightAll:            {nil, 200, true, true},
		hubdata.RightRegistryRead:   {nil, 401, false, false},
	} {
		hubtest.RunInBubble(t, fmt.Sprint(right), nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			policy := hubtest.AddPolicy(t, h, "some", right)
			p := hubtest.DialPeer(t, h)
			require.Equal(t, c.status, p.CBS().Put(hubtest.PolicyToken(policy, h.HostName())))
			_, err := p.Session().NewSender(t.Context(), serviceAddress, nil)
			requireOpen(t, c.opens, err)
			_, err = p.Session().NewSender(t.Context(), "/devices/dev-1/messages/events", nil)
			requireOpen(t, c.device, err)
		})
	}
}

// A policy can authenticate with SASL PLAIN, by a token or by its key. Other mechanisms leave it to
// $cbs.
func TestPoliciesOverSASL(t *testing.T) {
	ofPolicy := func(p hubdata.Policy, _ hubdata.Device) string { return hubtest.PolicyToken(p, "hub.example.test") }
	key := func(p hubdata.Policy, _ hubdata.Device) string { return p.SecondaryKey }
	path := func(p hubdata.Policy, _ hubdata.Device) string {
		return hubtest.PolicyToken(p, "hub.example.test%2Fmessages")
	}
	elsewhere := func(p hubdata.Policy, _ hubdata.Device) string { return hubtest.PolicyToken(p, "hub2.example.test") }
	decoded := func(p hubdata.Policy, _ hubdata.Device) string { return rawKey(p.PrimaryKey) }
	torn := func(hubdata.Policy, hubdata.Device) string { return "SharedAccessSignature sr=x" }
	ofDevice := func(_ hubdata.Policy, d hubdata.Device) string { return hubtest.Token(d) }
	for name, c := range map[string]struct {
		user     string
		password func(p hubdata.Policy, d hubdata.Device) string
		opens    bool
	}{
		"token":                      {"service@sas.root.hub", ofPolicy, true},
		"token, the path only":       {"service@sas.root.hub", path, true},
		"token, the name alone":      {"service", ofPolicy, true},
		"key, the name alone":        {"service", key, true},
		"key":                        {"service@sas.root.HUB", key, true},
		"decoded key":                {"service", decoded, false},
		"no password":                {"service", func(hubdata.Policy, hubdata.Device) string { return "" }, false},
		"another policy's token":     {"owner@sas.root.hub", ofPolicy, false},
		"nobody's key":               {"nobody", key, false},
		"a device's token":           {"service", ofDevice, false},
		"a device's token, no name":  {"", ofDevice, false},
		"a device's token, root":     {"@sas.root.hub", ofDevice, false},
		"another hub":                {"service@sas.root.hub2", key, false},
		"as a device":                {"service@sas.hub", ofPolicy, false},
		"token for another hub":      {"service", elsewhere, false},
		"token that is not complete": {"service", torn, false},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var refused []error
			h, d, policy := newService(t, &testbroker.Options{OnEvent: func(e event.Event) {
				if e.Kind == event.Refused {
					refused = append(refused, e.Err)
				}
			}})
			conn, err := dialSASLPlain(t, h, c.user, c.password(policy, d))
			if !c.opens {
				require.ErrorContains(t, err, "failed with code 0x1")
				synctest.Wait()
				require.Len(t, refused, 1)
				require.NotContains(t, refused[0].Error(), policy.PrimaryKey)
				return
			}
			require.NoError(t, err)
			_, err = (&hubtest.Peer{T: t, Hub: h, Conn: conn}).Session().NewSender(t.Context(), serviceAddress, nil)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			conn, err = dialSASLPlain(t, h, c.user, c.password(policy, d))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			synctest.Wait()
			require.Empty(t, refused, "a connection that was served is not refused")
			conn, err = dialSASLPlain(t, h, c.user, c.password(policy, d))
			require.NoError(t, err)
			_, err = (&hubtest.Peer{T: t, Hub: h, Conn: conn}).Session().NewSender(t.Context(),
				"/devices/dev-1/messages/events", nil)
			requireOpen(t, false, err)
			require.NoError(t, conn.Close())
		})
	}
}

// dialSASLPlain opens a connection with SASL PLAIN.
func dialSASLPlain(t testing.TB, h *testbroker.Hub, user, password string) (*amqp.Conn, error) {
	t.Helper()
	stream := hubtest.DialPort(t, h, testbroker.PortAMQP)
	return amqp.NewConn(t.Context(), stream, &amqp.ConnOptions{ContainerID: "c", HostName: h.HostName(),
		SASLType: amqp.SASLTypePlain(user, password)})
}

func rawKey(key string) string {
	b, _ := base64.StdEncoding.DecodeString(key)
	return string(b)
}

// The answer to a token goes to the receiver that the request names, or to one of its session.
func TestRepliesToTokensAreRouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		p := hubtest.DialFrames(t, h)
		p.Open(nil)
		receiver := func(channel uint16, handle uint32, target string) {
			a := hubtest.ReceiverFrom("$cbs", handle)
			a.Name, a.Target, a.SndSettleMode = target, &amqpwire.Target{Address: target}, amqpwire.SendSettled
			p.Say(channel, a)
			answer, _ := hubtest.Want[*amqpwire.Attach](p)
			require.Equal(t, amqpwire.SendSettled, answer.SndSettleMode, "some clients require the mode that they asked for")
			p.Say(channel, hubtest.Credit(handle, 10))
		}
		for channel := range uint16(2) {
			p.Begin(channel)
			p.Say(channel, hubtest.SenderTo("$cbs", 0))
			hubtest.Want[*amqpwire.Attach](p)
			hubtest.Want[*amqpwire.Flow](p)
			receiver(channel, 1, fmt.Sprint("first of ", channel))
			receiver(channel, 2, fmt.Sprint("second of ", channel))
			receiver(channel, 3, "shared")
		}
		for n, c := range []struct {
			channel uint16 // of the request
			replyTo string
			on      uint16 // the session of the answer, and its handle
			handle  uint32
		}{
			{0, "first of 0", 0, 1},
			{0, "first of 1", 1, 1},
			{1, "second of 0", 0, 2},
			{0, "cbs", 0, 3},
			{1, "", 1, 3},
			{0, "shared", 0, 3},
			{1, "shared", 1, 3},
		} {
			m := &amqpwire.Message{
				ApplicationProperties: amqpwire.Map{{Key: "operation", Value: "put-token"}, {Key: "name", Value: "x"},
					{Key: "type", Value: "servicebus.windows.net:sastoken"}},
				Value: hubtest.PolicyToken(policy, h.HostName()), HasValue: true,
			}
			if c.replyTo != "" {
				m.Properties = &amqpwire.Properties{ReplyTo: amqpwire.Some(c.replyTo)}
			}
			request := hubtest.TransferOf(0, uint32(n))
			request.Settled = amqpwire.Some(true)
			p.Say(c.channel, request, hubtest.Encoded(t, m)...)
			answer, f := hubtest.Want[*amqpwire.Transfer](p)
			require.Equal(t, c.on, f.Channel, c)
			require.Equal(t, c.handle, answer.Handle, c)
			require.True(t, answer.Settled.V)
		}
	})
}

// When a policy's token ends, only the links that nothing else allows are detached.
func TestTokensOfPoliciesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		p := hubtest.DialPeer(t, h)
		c := p.CBS()
		short := hubtest.Sign("hub.example.test", policy.PrimaryKey, time.Now().Add(10*time.Minute).Unix()) + "&skn=service"
		require.Equal(t, 200, c.Put(short))
		s, err := p.Session().NewSender(t.Context(), serviceAddress, nil)
		require.NoError(t, err)
		time.Sleep(14 * time.Minute)
		require.Equal(t, 200, c.Put(hubtest.PolicyToken(policy, "hub.example.test%2Fmessages")))
		time.Sleep(10 * time.Minute)
		require.NoError(t, s.Send(t.Context(), c2dMessage("dev-1", "x"), nil), "the other token allows it")
		time.Sleep(time.Hour)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, s.Send(t.Context(), c2dMessage("dev-1", "x"), nil)))
		_, err = p.Session().NewSender(t.Context(), serviceAddress, nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
		require.Zero(t, h.Links("", fault.LinkServiceC2D))
		require.Equal(t, 200, c.Put(hubtest.PolicyToken(policy, h.HostName())))
		_, err = p.Session().NewSender(t.Context(), serviceAddress, nil)
		require.NoError(t, err)
		require.Equal(t, 1, h.Links("", fault.LinkServiceC2D))
	})
}

// A token of fewer rights, or with an end, does not replace what another token or a key allows.
func TestGrantsAreKeptApart(t *testing.T) {
	hubtest.RunInBubble(t, "fewer rights", nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		policy := hubtest.AddPolicy(t, h, "owner", hubdata.RightAll)
		p := hubtest.DialPeer(t, h)
		c := p.CBS()
		soon := time.Now().Add(10 * time.Minute).Unix()
		require.Equal(t, 200, c.Put(hubtest.Sign("hub.example.test", policy.PrimaryKey, soon)+"&skn=owner"))
		_, err := p.Session().NewSender(t.Context(), "/devices/dev-1/messages/events", nil)
		require.NoError(t, err)
		later := time.Now().Add(time.Hour).Unix()
		require.Equal(t, 200, c.Put(hubtest.SignBytes("hub.example.test", []byte(policy.PrimaryKey), later)+"&skn=owner"))
		_, err = p.Session().NewSender(t.Context(), serviceAddress, nil)
		require.NoError(t, err)
		require.Equal(t, 1, h.Links("dev-1", fault.LinkTelemetry))
		time.Sleep(30 * time.Minute)
		require.Zero(t, h.Links("dev-1", fault.LinkTelemetry))
		require.Equal(t, 1, h.Links("", fault.LinkServiceC2D))
	})
	hubtest.RunBubble(t, "an end", func(t *testing.T) {
		h, _, policy := newService(t, nil)
		conn, err := dialSASLPlain(t, h, "service", policy.PrimaryKey)
		require.NoError(t, err)
		p := &hubtest.Peer{T: t, Hub: h, Conn: conn}
		soon := time.Now().Add(time.Minute).Unix()
		require.Equal(t, 200, p.CBS().Put(hubtest.Sign("hub.example.test", policy.PrimaryKey, soon)+"&skn=service"))
		s, err := p.Session().NewSender(t.Context(), serviceAddress, nil)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, s.Send(t.Context(), c2dMessage("dev-1", "x"), nil))
	})
}

// A link whose token ends while its attach is delayed is detached at once.
func TestSlowAttachOutlivesTheToken(t *testing.T) {
	for kind, address := range map[fault.LinkKind]string{
		fault.LinkFeedback: feedbackAddress, fault.LinkC2D: "/devices/dev-1/messages/devicebound",
	} {
		hubtest.RunInBubble(t, kind.String(), nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			policy := hubtest.AddPolicy(t, h, "owner", hubdata.RightAll)
			p := hubtest.DialPeer(t, h)
			end := time.Now().Add(10 * time.Minute).Unix()
			require.Equal(t, 200, p.CBS().Put(hubtest.Sign("hub.example.test", policy.PrimaryKey, end)+"&skn=owner"))
			in := h.Inject(fault.Fault{Kind: fault.SlowAttach, Link: kind, Delay: 30 * time.Minute})
			r, err := p.Session().NewReceiver(t.Context(), address, nil)
			require.NoError(t, err)
			require.Equal(t, 1, in.Fired())
			_, err = r.Receive(hubtest.Soon(t), nil)
			require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
			synctest.Wait() // the hub has forgotten the link
			require.Zero(t, h.Links("", kind))
		})
	}
}

// The connection of a back end has no device, and is closed with all others.
func TestCloseConnectionsOfBackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		p := loginService(t, h, policy)
		require.Zero(t, h.CloseConnections("dev-1"))
		_, err := p.Session().NewSender(t.Context(), serviceAddress, nil)
		require.NoError(t, err)
		require.Equal(t, 1, h.CloseConnections(""))
		select {
		case <-p.Conn.Done():
		case <-hubtest.Soon(t).Done():
			require.Fail(t, "the connection is open")
		}
		var e *amqp.ConnError
		require.ErrorAs(t, p.Conn.Err(), &e)
		require.Equal(t, amqp.ErrCond("amqp:connection:forced"), e.RemoteErr.Condition)
		synctest.Wait()
		require.Zero(t, h.CloseConnections(""))
	})
}

// c2dMessage is a message of a back end to a device.
func c2dMessage(device, text string) *amqp.Message {
	m := hubtest.Body(text)
	to := "/devices/" + device + "/messages/devicebound"
	m.Properties = &amqp.MessageProperties{To: &to}
	return m
}

func TestBackEndsSendC2DOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		hubtest.AddModule(t, h, "dev-1", "mod-1")
		hubtest.AddDevice(t, h, "a%b:1")
		p := loginService(t, h, policy)
		s, err := p.Session().NewSender(t.Context(), "amqps://hub.example.test:5671/messages/deviceBound", nil)
		require.NoError(t, err)
		expiry := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		m := c2dMessage("dev-1", "hello")
		m.Properties.MessageID, m.Properties.CorrelationID, m.Properties.UserID = "m-1", "c-1", []byte("ann")
		m.Properties.ContentType, m.Properties.ContentEncoding = new("text/plain"), new("utf-8")
		m.Properties.AbsoluteExpiryTime = &expiry
		m.ApplicationProperties = map[string]any{"iothub-ack": "Full", "unit": "C",
			"iothub-creation-time-utc": "2001-02-03T04:05:06Z", "iothub-message-schema": "s"}
		require.NoError(t, s.Send(t.Context(), m, nil))
		got := h.C2DLog("dev-1")[0].C2D
		require.Equal(t, hubdata.C2D{
			MessageID: "m-1", CorrelationID: "c-1", UserID: "ann", ContentType: "text/plain", ContentEncoding: "utf-8",
			Expiry: expiry, Ack: "full", Properties: []hubdata.Property{{Name: "unit", Value: "C"}}, Body: []byte("hello"),
			CreationTime: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), Schema: "s",
		}, got)
		for _, to := range []string{
			"/devices/dev-1/modules/mod-1/messages/deviceBound", "devices/a%25b%3A1/messages/devicebound",
			"/devices/a%b:1/messages/devicebound", "amqps://hub.example.test/devices/dev-1/messages/devicebound",
		} {
			m := hubtest.Body(to)
			m.Properties = &amqp.MessageProperties{To: &to}
			require.NoError(t, s.Send(t.Context(), m, nil), to)
		}
		require.Len(t, h.C2DLog("dev-1/mod-1"), 1)
		m = c2dMessage("dev-1", "without an expiry")
		m.Properties.AbsoluteExpiryTime = new(time.Date(1754, 8, 30, 0, 0, 0, 0, time.UTC))
		require.NoError(t, s.Send(t.Context(), m, nil))
		require.Equal(t, 4, h.CountC2D("dev-1", hubdata.C2DEnqueued))
		require.Len(t, h.C2DLog("a%b:1"), 2)
	})
}

// Faults of messages happen to those of back ends only if they name their links, and to telemetry
// only if they do not.
func TestFaultsOfMessagesOfBackEnds(t *testing.T) {
	for kind, c := range map[fault.Kind]struct {
		detached, stored bool
	}{
		fault.RejectMessage:      {false, false},
		fault.ReleaseMessage:     {false, false},
		fault.ModifyMessage:      {false, false},
		fault.DetachOnMessage:    {true, false},
		fault.DetachAfterMessage: {true, true},
		fault.EndOnMessage:       {true, false},
		fault.CloseOnMessage:     {true, false},
	} {
		hubtest.RunBubble(t, kind.String(), func(t *testing.T) {
			h, d, policy := newService(t, nil)
			s, err := loginService(t, h, policy).Session().NewSender(t.Context(), serviceAddress, nil)
			require.NoError(t, err)
			other := h.Inject(fault.Fault{Kind: kind})
			require.NoError(t, s.Send(t.Context(), c2dMessage("dev-1", "x"), nil))
			require.Zero(t, other.Fired())
			other.Remove()
			in := h.Inject(fault.Fault{Kind: kind, Link: fault.LinkServiceC2D, Condition: "amqp:internal-error"})
			require.NoError(t, hubtest.LoginAMQP(t, h, d).Telemetry(d).Send(t.Context(), hubtest.Body("x"), nil))
			require.Zero(t, in.Fired())
			_ = s.Send(t.Context(), c2dMessage("dev-1", "x"), nil)
			require.Equal(t, 1, in.Fired())
			require.Equal(t, c.stored, len(h.C2DLog("dev-1")) == 2)
			again := s.Send(t.Context(), c2dMessage("dev-1", "x"), nil)
			require.Equal(t, c.detached, again != nil)
		})
	}
}

func TestRefusedC2DOverAMQP(t *testing.T) {
	to := func(address string) func(m *amqp.Message) {
		return func(m *amqp.Message) { m.Properties.To = &address }
	}
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, &testbroker.Options{C2D: testbroker.C2DOptions{Queue: 1}})
		hubtest.AddDevice(t, h, "full")
		require.NoError(t, h.SendC2D("full", hubdata.C2D{}))
		p := loginService(t, h, policy)
		s, err := p.Session().NewSender(t.Context(), serviceAddress, nil)
		require.NoError(t, err)
		for name, c := range map[string]struct {
			condition string
			change    func(m *amqp.Message)
		}{
			"unknown device":   {"amqp:not-found", func(m *amqp.Message) { *m = *c2dMessage("nobody", "") }},
			"unknown module":   {"amqp:not-found", func(m *amqp.Message) { *m = *c2dMessage("dev-1/modules/x", "") }},
			"full queue":       {"amqp:resource-limit-exceeded", func(m *amqp.Message) { *m = *c2dMessage("full", "") }},
			"no properties":    {"amqp:invalid-field", func(m *amqp.Message) { m.Properties = nil }},
			"no receiver":      {"amqp:invalid-field", func(m *amqp.Message) { m.Properties.To = nil }},
			"to an input":      {"amqp:invalid-field", to("/devices/dev-1/inputs/x")},
			"to another place": {"amqp:invalid-field", to("dev-1")},
			"to another hub":   {"amqp:not-found", to("amqps://hub2.example.test/devices/dev-1/messages/devicebound")},
			"unknown ack": {"amqp:invalid-field", func(m *amqp.Message) {
				m.ApplicationProperties = map[string]any{"iothub-ack": "maybe"}
			}},
			"strange creation": {"amqp:invalid-field", func(m *amqp.Message) {
				m.ApplicationProperties = map[string]any{"iothub-creation-time-utc": "today"}
			}},
			"creation in the year 0": {"amqp:invalid-field", func(m *amqp.Message) {
				m.ApplicationProperties = map[string]any{"iothub-creation-time-utc": "0000-01-01T00:00:00Z"}
			}},
			"expiry in the year 12000": {"amqp:invalid-field", func(m *amqp.Message) {
				m.Properties.AbsoluteExpiryTime = new(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC))
			}},
			"too large": {"amqp:link:message-size-exceeded", func(m *amqp.Message) {
				m.Data = [][]byte{make([]byte, hubdata.MaxC2D+1)}
			}},
			"no data":        {"amqp:not-allowed", func(m *amqp.Message) { m.Data, m.Value = nil, int32(1) }},
			"another format": {"amqp:not-implemented", func(m *amqp.Message) { m.Format = 7 }},
		} {
			m := c2dMessage("dev-1", "x")
			c.change(m)
			require.Equal(t, c.condition, hubtest.Condition(t, s.Send(t.Context(), m, nil)), name)
		}
		require.Empty(t, h.C2DLog("dev-1"))
		h.Inject(fault.Fault{Kind: fault.Quota, Limit: -1})
		require.Equal(t, "amqp:resource-limit-exceeded",
			hubtest.Condition(t, s.Send(t.Context(), c2dMessage("dev-1", "x"), nil)))
	})
}
