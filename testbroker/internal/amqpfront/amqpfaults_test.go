package amqpfront_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// lostBy returns what an error reports as lost: "connection", "session", "link", or "" for none.
func lostBy(err error) string {
	var c *amqp.ConnError
	var s *amqp.SessionError
	var l *amqp.LinkError
	switch {
	case errors.As(err, &c):
		return "connection"
	case errors.As(err, &s):
		return "session"
	case errors.As(err, &l):
		return "link"
	}
	return ""
}

// TestFaultsOfMessages sends one message under a fault, and checks the client's result and the
// hub's log.
func TestFaultsOfMessages(t *testing.T) {
	const deadline = "context deadline exceeded"
	for name, c := range map[string]struct {
		fault     fault.Fault
		lost      string
		condition string
		text      string // text of an error without a condition
		stored    int
	}{
		"DropBeforePublish": {fault.Fault{Kind: fault.DropBeforePublish}, "connection", "", "", 0},
		"DropAfterPublish":  {fault.Fault{Kind: fault.DropAfterPublish}, "connection", "", "", 1},
		"DropAfterPuback":   {fault.Fault{Kind: fault.DropAfterPuback}, "either", "", "", 1},
		"SwallowPuback":     {fault.Fault{Kind: fault.SwallowPuback}, "", "", deadline, 1},
		"SlowPuback": {fault.Fault{Kind: fault.SlowPuback, Delay: 2 * time.Second}, "", "",
			deadline, 1},
		"SlowPuback, short": {fault.Fault{Kind: fault.SlowPuback, Delay: time.Second / 2}, "none", "", "",
			1},
		"Forget":           {fault.Fault{Kind: fault.Forget}, "none", "", "", 0},
		"GarbageOnPublish": {fault.Fault{Kind: fault.GarbageOnPublish}, "connection", "", "", 1},
		"HalfOpen":         {fault.Fault{Kind: fault.HalfOpen}, "", "", deadline, 0},
		"Absent":           {fault.Fault{Kind: fault.Absent, Device: "dev-1"}, "connection", "", "", 0},
		"Quota": {fault.Fault{Kind: fault.Quota, Limit: -1}, "", "amqp:resource-limit-exceeded",
			"", 0},
		"RejectMessage": {fault.Fault{Kind: fault.RejectMessage}, "", "amqp:internal-error", "", 0},
		"RejectMessage, any": {fault.Fault{Kind: fault.RejectMessage, Condition: "com.microsoft:timeout",
			Description: "why"},
			"", "com.microsoft:timeout", "", 0},
		"ReleaseMessage": {fault.Fault{Kind: fault.ReleaseMessage}, "none", "", "", 0},
		"ModifyMessage": {fault.Fault{Kind: fault.ModifyMessage, UndeliverableHere: true}, "none", "",
			"", 0},
		"CloseOnMessage": {fault.Fault{Kind: fault.CloseOnMessage}, "connection",
			"amqp:connection:forced", "", 0},
		"EndOnMessage": {fault.Fault{Kind: fault.EndOnMessage, Condition: "amqp:session:errant-link"},
			"session", "amqp:session:errant-link", "", 0},
		"DetachOnMessage": {fault.Fault{Kind: fault.DetachOnMessage}, "link", "amqp:link:detach-forced",
			"", 0},
		"DetachAfterMessage": {fault.Fault{Kind: fault.DetachAfterMessage, Condition: "amqp:link:stolen"},
			"link", "amqp:link:stolen", "", 1},
		"DetachOnMessage, unclosed": {fault.Fault{Kind: fault.DetachOnMessage, Unclosed: true}, "", "", deadline,
			0},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			l := hubtest.LoginAMQP(t, h, d).Telemetry(d)
			in := h.Inject(c.fault)
			receipt, err := l.SendWithReceipt(hubtest.Soon(t), hubtest.Body("x"), nil)
			var state amqp.DeliveryState
			if err == nil {
				state, err = receipt.Wait(hubtest.Soon(t))
			}
			switch s := state.(type) {
			case *amqp.StateRejected:
				err = s.Error
			case *amqp.StateReleased:
				require.Equal(t, fault.ReleaseMessage, c.fault.Kind)
			case *amqp.StateModified:
				require.Equal(t, fault.ModifyMessage, c.fault.Kind)
				require.True(t, s.DeliveryFailed && s.UndeliverableHere)
			}
			synctest.Wait()
			require.Equal(t, c.stored, h.Len())
			require.Equal(t, 1, in.Fired())
			require.True(t, c.fault.Kind.Protocols()&hubdata.AMQP != 0)
			if c.lost == "none" {
				require.NoError(t, err)
				return
			}
			if c.lost == "either" { // the client has both the outcome and the end, and reports one of them
				if err != nil {
					require.Equal(t, "connection", lostBy(err))
				}
				return
			}
			require.Error(t, err)
			require.Equal(t, c.lost, lostBy(err), "%v", err)
			if c.condition != "" {
				require.Equal(t, c.condition, hubtest.Condition(t, err))
			}
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestFaultsOfAnAttach(t *testing.T) {
	attach := func(p *hubtest.Peer, ctx context.Context) error {
		_, err := p.Session().NewReceiver(ctx, "/devices/dev-1/messages/devicebound", nil)
		return err
	}
	for name, c := range map[string]struct {
		fault fault.Fault
		want  string
	}{
		"RefuseAttach": {fault.Fault{Kind: fault.RefuseAttach}, "amqp:internal-error"},
		"RefuseAttach, any": {fault.Fault{Kind: fault.RefuseAttach, Condition: "amqp:link:redirect",
			Link: fault.LinkC2D},
			"amqp:link:redirect"},
		"another link":   {fault.Fault{Kind: fault.RefuseAttach, Link: fault.LinkTelemetry}, "none"},
		"another device": {fault.Fault{Kind: fault.RefuseAttach, Device: "dev-2"}, "none"},
		"SlowAttach":     {fault.Fault{Kind: fault.SlowAttach, Delay: time.Second / 2}, "slow"},
		"SwallowAttach":  {fault.Fault{Kind: fault.SwallowAttach}, "deadline"},
		"DropOnAttach":   {fault.Fault{Kind: fault.DropOnAttach}, "connection"},
		"Throttle":       {fault.Fault{Kind: fault.Throttle}, "com.microsoft:device-container-throttled"},
		"Absent":         {fault.Fault{Kind: fault.Absent, Device: "dev-1", After: 0}, "connection"},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.LoginAMQP(t, h, d)
			in := h.Inject(c.fault)
			if c.fault.Kind == fault.Absent {
				<-p.Conn.Done()
				require.Equal(t, 1, in.Fired())
				q := hubtest.DialPeer(t, h)
				tokens := q.CBS()
				require.Error(t, tokens.Sender.Send(hubtest.Soon(t), hubtest.TokenMessage("1", "x", hubtest.Token(d)), nil))
				require.Equal(t, 2, in.Fired(), "the device is cut off at its put-token")
				return
			}
			start := time.Now()
			err := attach(p, hubtest.Soon(t))
			fired := 1
			switch c.want {
			case "none":
				require.NoError(t, err)
				fired = 0
			case "slow":
				require.NoError(t, err)
				require.Equal(t, c.fault.Delay, time.Since(start))
				require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
				require.NoError(t, h.WaitC2D(hubtest.Soon(t), "dev-1", hubdata.C2DInvisible, 1))
			case "deadline":
				require.ErrorIs(t, err, context.DeadlineExceeded)
			case "connection":
				require.Equal(t, "connection", lostBy(err))
			default:
				require.Equal(t, c.want, hubtest.Condition(t, err))
				in.Remove()
				require.NoError(t, attach(p, hubtest.Soon(t)))
			}
			require.Equal(t, fired, in.Fired())
		})
	}
}

func TestCreditIsWithheld(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		in := h.Inject(fault.Fault{Kind: fault.WithholdCredit})
		require.Equal(t, "amqp:link:transfer-limit-exceeded",
			hubtest.Condition(t, p.Telemetry(d).Send(hubtest.Soon(t), hubtest.Body("x"), nil)))
		later := h.Inject(fault.Fault{Kind: fault.WithholdCredit, Delay: 3 * time.Second})
		start := time.Now()
		require.NoError(t, p.Telemetry(d).Send(t.Context(), hubtest.Body("x"), nil))
		require.Equal(t, 3*time.Second, time.Since(start))
		require.NoError(t, p.Telemetry(d).Send(hubtest.Soon(t), hubtest.Body("x"), nil))
		require.Equal(t, []int{1, 1}, []int{in.Fired(), later.Fired()})
	})
}

// An idle link is detached without any sign before.
func TestIdleLinksAreDetached(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		in := h.Inject(fault.Fault{Kind: fault.DetachWhileIdle, Link: fault.LinkC2D, Delay: time.Hour / 2})
		l, r := p.Telemetry(d), p.C2dMessages(d, nil)
		start := time.Now()
		_, err := r.Receive(t.Context(), nil)
		require.Equal(t, "amqp:link:detach-forced", hubtest.Condition(t, err))
		require.Equal(t, time.Hour/2, time.Since(start))
		require.NoError(t, l.Send(t.Context(), hubtest.Body("x"), nil))
		require.Equal(t, 1, in.Fired())

		e := hubdata.AMQPError{Condition: "com.microsoft:timeout", Description: "no reason"}
		synctest.Wait() // for go-amqp's half of the detach
		require.Zero(t, h.DetachLinks("dev-1", fault.LinkC2D, e))
		require.Equal(t, 1, h.DetachLinks("", fault.LinkAny, e))
		require.Equal(t, "com.microsoft:timeout", hubtest.Condition(t, l.Send(t.Context(), hubtest.Body("x"), nil)))
		require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkCBSReceiver, hubdata.AMQPError{}))

		l, r = p.Telemetry(d), p.C2dMessages(d, nil)
		require.Equal(t, 2, h.EndSessions("dev-1", e))
		err = l.Send(t.Context(), hubtest.Body("x"), nil)
		require.Equal(t, "session", lostBy(err))
		require.Equal(t, "com.microsoft:timeout", hubtest.Condition(t, err))
		_, err = r.Receive(t.Context(), nil)
		require.Equal(t, "session", lostBy(err))
		synctest.Wait()
		require.Zero(t, h.Links("dev-1", fault.LinkAny))

		l = p.Telemetry(d)
		require.Equal(t, 1, h.CloseAMQP("dev-1", e))
		err = l.Send(t.Context(), hubtest.Body("x"), nil)
		require.Equal(t, "connection", lostBy(err))
		require.Equal(t, "com.microsoft:timeout", hubtest.Condition(t, err))
		require.Error(t, hubdata.AMQPError{Condition: "a"})
	})
}

func TestFaultsOfTokens(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		c := hubtest.DialPeer(t, h).CBS()
		for _, status := range []int{400, 401, 403, 404, 429, 500, 503} {
			in := h.Inject(fault.Fault{Kind: fault.RefuseToken, Device: "dev-1", Status: status})
			require.Equal(t, status, c.Put(hubtest.Token(d)))
			require.Equal(t, 1, in.Fired())
		}
		slow := h.Inject(fault.Fault{Kind: fault.SlowToken, Delay: 100 * time.Second})
		start := time.Now()
		require.Equal(t, 200, c.Put(hubtest.Token(d)))
		require.Equal(t, 100*time.Second, time.Since(start))
		require.Equal(t, 1, slow.Fired())
		none := h.Inject(fault.Fault{Kind: fault.SwallowToken})
		require.NoError(t, c.Sender.Send(t.Context(), hubtest.TokenMessage("1", "x", hubtest.Token(d)), nil))
		_, err := c.Receiver.Receive(hubtest.Soon(t), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, none.Fired())
		drop := h.Inject(fault.Fault{Kind: fault.DropOnToken})
		err = c.Sender.Send(t.Context(), hubtest.TokenMessage("1", "x", hubtest.Token(d)),
			&amqp.SendOptions{Settled: true})
		if err != nil { // go-amqp saw the drop before it looked whether the write was done
			require.Equal(t, "connection", lostBy(err))
		}
		_, err = c.Receiver.Receive(t.Context(), nil)
		require.Equal(t, "connection", lostBy(err))
		require.Equal(t, 1, drop.Fired())
	})
}

func TestFaultsOfAnOpen(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault.Fault
		sasl  amqp.SASLType
		want  string
	}{
		"RefuseConnect": {fault.Fault{Kind: fault.RefuseConnect}, nil, "amqp:connection:forced"},
		"RefuseConnect, any": {fault.Fault{Kind: fault.RefuseConnect, Condition: "amqp:connection:redirect"}, nil,
			"amqp:connection:redirect"},
		"GarbageOnConnect":  {fault.Fault{Kind: fault.GarbageOnConnect}, nil, "lost"},
		"DropConnect":       {fault.Fault{Kind: fault.DropConnect}, nil, "EOF"},
		"SwallowConnack":    {fault.Fault{Kind: fault.SwallowConnack}, nil, "timeout"},
		"HalfOpen":          {fault.Fault{Kind: fault.HalfOpen}, nil, "timeout"},
		"Absent":            {fault.Fault{Kind: fault.Absent}, nil, "refused"},
		"RefuseSASL":        {fault.Fault{Kind: fault.RefuseSASL, Code: 4}, amqp.SASLTypeAnonymous(), "code 0x4"},
		"RefuseSASL, auth":  {fault.Fault{Kind: fault.RefuseSASL}, amqp.SASLTypeAnonymous(), "code 0x1"},
		"of another device": {fault.Fault{Kind: fault.DropConnect, Device: "dev-1"}, nil, ""},
		"SlowConnack":       {fault.Fault{Kind: fault.SlowConnack, Delay: time.Second / 2}, nil, ""},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			in := h.Inject(c.fault)
			stream, err := h.Dial(testbroker.PortAMQP)(t.Context(), "tcp", "hub")
			var conn *amqp.Conn
			if err == nil {
				defer stream.Close()
				conn, err = amqp.NewConn(hubtest.Soon(t), stream, &amqp.ConnOptions{ContainerID: "c", SASLType: c.sasl})
			}
			if err == nil {
				defer conn.Close()
				if c.want != "" { // the open was answered, then a close followed
					<-conn.Done()
					if err = conn.Err(); c.want == "lost" {
						require.Equal(t, "connection", lostBy(err))
						c.want = ""
					}
				}
			}
			if c.want == "" && name != "GarbageOnConnect" {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				if c.want != "timeout" || !errors.Is(err, context.DeadlineExceeded) { // either may come first
					require.ErrorContains(t, err, c.want)
				}
			}
			want := 1
			if c.fault.Device != "" {
				want = 0
			}
			require.Equal(t, want, in.Fired())
		})
	}
}

func TestThrottleOverAMQP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		l := hubtest.LoginAMQP(t, h, d).Telemetry(d)
		in := h.Inject(fault.Fault{Kind: fault.Throttle, Rate: 2, Limit: 4})
		start := time.Now()
		var receipts []amqp.SendReceipt
		for i := range 7 {
			r, err := l.SendWithReceipt(t.Context(), hubtest.Body(fmt.Sprint(i)), nil)
			require.NoError(t, err)
			receipts = append(receipts, r)
			synctest.Wait()
		}
		rejected := 0
		for _, r := range receipts {
			state, err := r.Wait(t.Context())
			require.NoError(t, err)
			if s, ok := state.(*amqp.StateRejected); ok {
				require.EqualValues(t, "com.microsoft:device-container-throttled", s.Error.Condition)
				rejected++
			}
		}
		require.Equal(t, 2, rejected)
		require.Equal(t, 5, h.Len())
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, 6, in.Fired())
	})
}

// Messages with which a device requests a fault.
func TestFaultMessagesOverAMQP(t *testing.T) {
	type links struct {
		telemetry                *amqp.Sender
		commands                 *amqp.Receiver
		twinOut, methodOut       *amqp.Sender
		twinIn, methodIn, tokens *amqp.Receiver
		cbs                      *amqp.Sender
		conn                     *amqp.Conn
	}
	receive := func(r *amqp.Receiver) error { _, err := r.Receive(context.Background(), nil); return err }
	send := func(s *amqp.Sender) error { return s.Send(context.Background(), hubtest.Body("x"), nil) }
	for name, c := range map[string]struct {
		lost, condition string
		of              func(l links) error
		left            int // links except those to $cbs
	}{
		"KillTcp": {"connection", "", func(l links) error { return receive(l.commands) }, 0},
		"KillAmqpConnection": {"connection",
			"amqp:connection:forced", func(l links) error { return receive(l.commands) }, 0},
		"ShutDownAmqp": {"connection",
			"amqp:connection:forced", func(l links) error { return receive(l.commands) }, 0},
		"KillAmqpSession":        {"session", "amqp:link:detach-forced", func(l links) error { return send(l.telemetry) }, 5},
		"KillAmqpD2CLink":        {"link", "amqp:link:detach-forced", func(l links) error { return send(l.telemetry) }, 5},
		"KillAmqpc2dLink":        {"link", "amqp:link:detach-forced", func(l links) error { return receive(l.commands) }, 5},
		"KillAmqpTwinLinkReq":    {"link", "amqp:link:detach-forced", func(l links) error { return send(l.twinOut) }, 5},
		"KillAmqpTwinLinkResp":   {"link", "amqp:link:detach-forced", func(l links) error { return receive(l.twinIn) }, 5},
		"KillAmqpMethodReqLink":  {"link", "amqp:link:detach-forced", func(l links) error { return receive(l.methodIn) }, 5},
		"KillAmqpMethodRespLink": {"link", "amqp:link:detach-forced", func(l links) error { return send(l.methodOut) }, 5},
		"KillAmqpCBSLinkReq":     {"link", "amqp:link:detach-forced", func(l links) error { return send(l.cbs) }, 6},
		"KillAmqpCBSLinkResp":    {"link", "amqp:link:detach-forced", func(l links) error { return receive(l.tokens) }, 6},
		"InvokeThrottling": {"",
			"com.microsoft:device-container-throttled", func(l links) error { return send(l.telemetry) }, 6},
		"InvokeMaxMessageQuota": {"", "amqp:resource-limit-exceeded", func(l links) error { return send(l.telemetry) }, 6},
		"InvokeAuthError":       {"", "amqp:unauthorized-access", func(l links) error { return send(l.telemetry) }, 6},
		"ShutDownMqtt":          {"none", "", func(l links) error { return send(l.telemetry) }, 6},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.DialPeer(t, h)
			tokens := p.CBS()
			require.Equal(t, 200, tokens.Put(hubtest.Token(d)))
			l := links{telemetry: p.Telemetry(d), commands: p.C2dMessages(d, nil), tokens: tokens.Receiver, cbs: tokens.Sender,
				conn: p.Conn}
			l.twinOut, l.twinIn = hubtest.Pair(p, "/devices/dev-1/twin", "t")
			l.methodOut, l.methodIn = hubtest.Pair(p, "/devices/dev-1/methods/devicebound", "m")
			require.Equal(t, 6, h.Links("dev-1", fault.LinkAny))
			require.NoError(t, l.telemetry.Send(t.Context(), &amqp.Message{ApplicationProperties: map[string]any{
				"AzIoTHub_FaultOperationType": name, "AzIoTHub_FaultOperationCloseReason": "boom",
				"AzIoTHub_FaultOperationDelayInSecs": "2", "AzIoTHub_FaultOperationDurationInSecs": "5",
			}, Data: [][]byte{{1}}}, nil))
			time.Sleep(2*time.Second - 1)
			require.Equal(t, 6, h.Links("dev-1", fault.LinkAny))
			time.Sleep(2 * time.Nanosecond)
			require.Zero(t, h.Len(), "it is no telemetry")
			err := c.of(l)
			if c.lost == "none" {
				require.NoError(t, err)
				require.False(t, h.FaultMessages()[0].Happened)
				return
			}
			require.Equal(t, c.lost, lostBy(err), "%v", err)
			if c.condition != "" {
				require.Equal(t, c.condition, hubtest.Condition(t, err))
				require.ErrorContains(t, err, "boom")
			}
			require.Equal(t, c.left, h.Links("dev-1", fault.LinkAny))
			require.True(t, h.FaultMessages()[0].Happened)
			if c.lost == "" {
				require.Equal(t, 1, h.FaultMessages()[0].Refused)
				time.Sleep(5 * time.Second)
				require.NoError(t, c.of(l), "it is over")
			}
			if name == "KillTcp" {
				q := hubtest.DialPeer(t, h).CBS()
				require.Error(t, q.Sender.Send(t.Context(), hubtest.TokenMessage("1", "x", hubtest.Token(d)),
					nil), "cut for the duration")
				time.Sleep(5 * time.Second)
				hubtest.LoginAMQP(t, h, d)
			}
		})
	}
}

func TestInvokedOnce(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		l := hubtest.LoginAMQP(t, h, d).Telemetry(d)
		require.NoError(t, l.Send(t.Context(), &amqp.Message{ApplicationProperties: map[string]any{
			"AzIoTHub_FaultOperationType": "InvokeMaxMessageQuota", "AzIoTHub_FaultOperationCloseReason": "20",
		}, Data: [][]byte{{1}}}, nil))
		hubtest.Login(t, h, d).Conn.Close()
		require.Equal(t, "amqp:resource-limit-exceeded", hubtest.Condition(t, l.Send(t.Context(), hubtest.Body("x"), nil)))
		require.NoError(t, l.Send(t.Context(), hubtest.Body("x"), nil))
		require.Equal(t, 1, h.FaultMessages()[0].Refused)
	})
}

func TestGracefulShutDown(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		require.NoError(t, p.Telemetry(d).Send(t.Context(), &amqp.Message{ApplicationProperties: map[string]any{
			"AzIoTHub_FaultOperationType": "ShutDownAmqp", "AzIoTHub_FaultOperationCloseReason": "byebye",
			"AzIoTHub_FaultOperationDelayInSecs": "1", // otherwise the client may see the close before the outcome
		}, Data: [][]byte{{1}}}, nil))
		<-p.Conn.Done()
		require.NoError(t, p.Conn.Err(), "a close without an error")
	})
}

// The tests above cover all 18 fault kinds that are for AMQP alone.
func TestNoFaultIsForgotten(t *testing.T) {
	n := 0
	for _, k := range fault.Kinds() {
		require.NotZero(t, k.Protocols(), k)
		require.NotContains(t, k.Protocols().String(), "(")
		if k.Protocols() == hubdata.AMQP {
			n++
		}
	}
	require.Equal(t, 18, n)
	require.Equal(t, "Protocol(8)", hubdata.Protocol(8).String())
	require.Equal(t, "LinkKind(99)", fault.LinkKind(99).String())
	require.Equal(t, "method sender", fault.LinkMethodSender.String())
}

// The outcome can be read before the end of the connection.
func TestDropAfterTheOutcome(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.DropAfterPuback})
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		p.Say(0, hubtest.TransferOf(1, 5), hubtest.DataOf(t, "x")...)
		disposition, _ := hubtest.Want[*amqpwire.Disposition](p)
		require.Equal(t, &amqpwire.Accepted{}, disposition.State)
		require.ErrorIs(t, p.Ended(), io.EOF)
		require.Equal(t, 1, in.Fired())
	})
}

// A half-open connection shows nothing: neither the expiry of the client's token nor its idle
// timeout.
func TestHalfOpenIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{IdleTimeout: time.Minute}})
		p := hubtest.DialFrames(t, h)
		p.Login(d)
		p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen})
		require.Equal(t, 1, in.Fired())
		p.Say(0, hubtest.TransferOf(1, 5), hubtest.DataOf(t, "x")...)
		p.Conn.SetReadDeadline(time.Now().Add(2 * time.Hour))
		_, err := p.Next()
		require.ErrorContains(t, err, "timeout")
		require.Zero(t, h.Len())
	})
}

// The parts of an error that cannot be sent are left out.
func TestErrorsThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct{ give, want hubdata.AMQPError }{
		"too long": {hubdata.AMQPError{Condition: "a:b", Description: string(make([]byte, 600))},
			hubdata.AMQPError{Condition: "a:b"}},
		"not UTF-8": {hubdata.AMQPError{Condition: "a:b", Description: "\xff"}, hubdata.AMQPError{Condition: "a:b",
			Description: "?"}},
		"not ASCII": {hubdata.AMQPError{Condition: "ä:b"}, hubdata.AMQPError{}},
		"none":      {hubdata.AMQPError{}, hubdata.AMQPError{}},
		"as it is": {hubdata.AMQPError{Condition: "a:b", Description: "c"}, hubdata.AMQPError{Condition: "a:b",
			Description: "c"}},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			same := func(e *amqpwire.Error) {
				t.Helper()
				if e == nil {
					e = &amqpwire.Error{}
				}
				require.Equal(t, c.want, hubdata.AMQPError{Condition: string(e.Condition), Description: e.Description})
			}
			p := hubtest.DialFrames(t, h)
			p.Open(&amqpwire.Open{ContainerID: "c", MaxFrameSize: 512})
			p.Begin(0)
			p.Attach(hubtest.SenderTo("$cbs", 100))
			p.Attach(hubtest.ReceiverFrom("$cbs", 101))
			p.Say(0, hubtest.Credit(101, 10))
			require.Equal(t, 200, p.Put(0, "put-token", hubtest.Token(d)))
			a := hubtest.SenderTo(hubtest.TelemetryAddress, 1)
			a.Properties = amqpwire.Map{{Key: amqpwire.Symbol("long"), Value: string(make([]byte, 400))}}
			require.Empty(t, p.Attach(a).Properties, "the echo would not fit either")
			h.Inject(fault.Fault{Kind: fault.RejectMessage, Condition: c.give.Condition,
				Description: c.give.Description})
			if name != "none" {
				p.Say(0, hubtest.TransferOf(1, 5), hubtest.DataOf(t, "x")...)
				rejected, _ := hubtest.Want[*amqpwire.Disposition](p)
				same(rejected.State.(*amqpwire.Rejected).Error)
			}
			require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkAny, c.give))
			detach, _ := hubtest.Want[*amqpwire.Detach](p)
			same(detach.Error)
			p.Say(0, &amqpwire.Detach{Handle: 1, Closed: true})
			p.Attach(hubtest.SenderTo(hubtest.TelemetryAddress, 1))
			require.Equal(t, 1, h.EndSessions("dev-1", c.give))
			end, _ := hubtest.Want[*amqpwire.End](p)
			same(end.Error)
			require.Equal(t, 1, h.CloseAMQP("dev-1", c.give))
			closed, _ := hubtest.Want[*amqpwire.Close](p)
			same(closed.Error)
		})
	}
}

// A device that requested to be cut off is also recognized by its SASL user name.
func TestKillTcpWithSASL(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		open := func() (*amqp.Conn, error) {
			stream := hubtest.DialPort(t, h, testbroker.PortAMQP)
			return amqp.NewConn(t.Context(), stream, &amqp.ConnOptions{ContainerID: "c",
				SASLType: amqp.SASLTypePlain("dev-1@sas.hub", hubtest.Token(d))})
		}
		conn, err := open()
		require.NoError(t, err)
		p := &hubtest.Peer{T: t, Hub: h, Conn: conn}
		require.NoError(t, p.Telemetry(d).Send(t.Context(), &amqp.Message{ApplicationProperties: map[string]any{
			"AzIoTHub_FaultOperationType": "KillTcp", "AzIoTHub_FaultOperationDelayInSecs": "1",
			"AzIoTHub_FaultOperationDurationInSecs": "5",
		}, Data: [][]byte{{1}}}, nil))
		<-conn.Done()
		_, err = open()
		require.Error(t, err)
		time.Sleep(5 * time.Second)
		conn, err = open()
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	})
}

// A frame too large for the SASL handshake is not answered with AMQP frames.
func TestSASLFramesAreShort(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.DialFrames(t, h)
		header := amqpwire.ProtocolHeader(amqpwire.ProtocolSASL)
		p.Send(header[:])
		require.Equal(t, amqpwire.ProtocolSASL, p.Header())
		hubtest.Want[*amqpwire.Mechanisms](p)
		p.Say(0, &amqpwire.Init{Mechanism: "PLAIN", InitialResponse: make([]byte, 600)})
		require.ErrorIs(t, p.Ended(), io.EOF)
	})
}
