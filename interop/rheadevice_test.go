package interop

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// rheaWays are the kinds of connection to a broker made with rhea.
var rheaWays = []struct {
	name, web string
}{
	{"over TLS", ""},
	{"over WebSocket", "/broker/amqp"},
}

// rheaServer is a broker controlled by the test.
type rheaServer struct {
	*script
	ca   *authority
	addr string
	web  string
}

func startRheaServer(t testing.TB, web string) *rheaServer {
	s := &rheaServer{script: startScript(t, "rhea-server.js"), ca: newAuthority(t), web: web}
	cert := s.ca.server(t, hostName)
	s.do("users", nil)
	s.tell(map[string]any{"do": "serve", "cert": string(certPEM(cert.Leaf)), "key": string(keyPEM(t, cert)), "web": web})
	s.addr = loopback(s.next("listening", "").Port)
	return s
}

// do sends a command and waits until it is done.
func (s *rheaServer) do(command string, fields map[string]any) {
	s.t.Helper()
	all := map[string]any{"do": command}
	for k, v := range fields {
		all[k] = v
	}
	s.tell(all)
	s.next("done", "")
}

func (s *rheaServer) options() login {
	o := login{Options: amqp.Options{
		Network:   netopt.Options{Addr: s.addr, TLS: &tls.Config{RootCAs: s.ca.pool()}},
		Addresses: &amqp.Addresses{Telemetry: "telemetry", Commands: "commands"},
	}}
	if s.web != "" {
		o.Network.Tunnel = websocket.AMQPStandard(&websocket.Options{Path: s.web})
	}
	return o
}

func eachRheaWay(t *testing.T, check func(t *testing.T, s *rheaServer)) {
	for _, way := range rheaWays {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			check(t, startRheaServer(t, way.web))
		})
	}
}

func TestRheaAsServerCredentials(t *testing.T) {
	t.Parallel()
	eachRheaWay(t, func(t *testing.T, s *rheaServer) {
		once := device.Options{RetryPolicy: retrypolicy.NoRetry{}}
		c := openAMQP(t, s.options(), once)
		require.Equal(t, hostName, s.next("connected", "").Text, "hostname of open")
		require.NoError(t, c.Send(soon(t), numbered(0)))
		requireNumbered(t, s.next("arrived", ""))
		s.do("users", map[string]any{"users": map[string]string{"dev-1": "right"}})
		for password, want := range map[string]transport.Kind{"right": transport.Unknown, "wrong": transport.Unauthorized} {
			o := s.options()
			o.user, o.password = "dev-1", password
			c := createAMQP(t, o, once)
			err := c.Open(soon(t))
			if want != transport.Unknown {
				require.ErrorIs(t, err, want)
				seen(t, "PLAIN, wrong password: %v", err)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, c.Send(soon(t), numbered(1)))
		}
		err := createAMQP(t, s.options(), once).Open(soon(t))
		require.ErrorIs(t, err, transport.Unsupported)
		seen(t, "ANONYMOUS and PLAIN: a message each was acknowledged; ANONYMOUS, not offered: %v", err)
	})
}

// dispositions are what a broker can do to a message, including no answer.
var dispositions = []struct {
	name, action string
	refused      bool // permanently, with kind
	kind         transport.Kind
}{
	{name: "answered late and out of order", action: "later"},
	{name: "released", action: "release"},
	{name: "modified", action: "modify"},
	{name: "modified, undeliverable here", action: "undeliverable", refused: true, kind: transport.Forbidden},
	{name: "rejected without a reason", action: "reject", refused: true, kind: transport.Unknown},
	{name: "rejected for good", action: "reject:amqp:decode-error", refused: true, kind: transport.Invalid},
	{name: "rejected for now", action: "reject:amqp:internal-error"},
	{name: "rejected for a limit", action: "reject:amqp:resource-limit-exceeded"},
	{name: "link detached", action: "detach"},
	{name: "link detached by force", action: "detach:amqp:link:detach-forced"},
	{name: "link detached for an error", action: "detach:amqp:internal-error"},
	{name: "session ended", action: "end"},
	{name: "session ended for an error", action: "end:amqp:session:window-violation"},
	{name: "connection closed", action: "close"},
	{name: "connection forced", action: "close:amqp:connection:forced"},
	{name: "connection dropped", action: "drop"},
	{name: "connection reset", action: "reset"},
	{name: "never answered", action: "ignore"}, // detected by AckTimeout
}

// seriesResult is the outcome of a series.
type seriesResult struct {
	refused  map[string]error // by body
	arrived  tally            // messages that the server accepted
	happened map[string]int   // number of times per action
	hit      map[string]bool  // bodies on which an action other than accept was applied
}

// follow sends a numbered series and returns its outcome.
func (s *rheaServer) follow(t testing.TB, c *device.Client, messages, window int) *seriesResult {
	f := &seriesResult{refused: make(map[string]error), happened: make(map[string]int), hit: make(map[string]bool)}
	ring := make([]device.Receipt, window)
	for i := range messages + window {
		receipt := &ring[i%window]
		if done := i - window; done >= 0 && done < messages {
			if err := receipt.Wait(soon(t)); err != nil {
				f.refused[fmt.Sprintf("%04d", done)] = err
			}
		}
		if i < messages {
			require.NoError(t, c.Enqueue(soon(t), numbered(i), receipt))
		}
	}
	const end = "end of the series"
	s.do("plan", map[string]any{"plan": []string{}})
	require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte(end)}))
	for {
		e := s.next("arrived", "")
		if e.Payload == end {
			return f
		}
		requireNumbered(t, e)
		require.True(t, e.Durable)
		f.happened[e.Action]++
		switch e.Action {
		case "accept", "later":
			f.arrived.add(e.Payload)
		default:
			f.hit[e.Payload] = true
		}
	}
}

// The broker applies an action to three messages of each series. All others are acknowledged, and
// so are these unless they were refused permanently.
func TestRheaAsServerDispositions(t *testing.T) {
	t.Parallel()
	const (
		messages = 60
		window   = 8
	)
	eachRheaWay(t, func(t *testing.T, s *rheaServer) {
		for _, one := range dispositions {
			var plan []string
			for i := range 50 {
				if i%20 == 9 {
					plan = append(plan, one.action)
				} else {
					plan = append(plan, "accept")
				}
			}
			s.do("plan", map[string]any{"plan": plan})
			limit := 30 * time.Second
			if one.action == "ignore" {
				limit = time.Second // detected by it
			}
			c := openAMQP(t, s.options(), device.Options{Window: window, AckTimeout: limit})
			f := s.follow(t, c, messages, window)
			stats := c.Stats()
			require.NoError(t, c.Close())
			action, _, _ := strings.Cut(one.action, ":")
			require.GreaterOrEqual(t, f.happened[action], 2, one.name)
			for body, err := range f.refused {
				require.True(t, one.refused && f.hit[body], "%s: %s: %v", one.name, body, err)
				require.ErrorIs(t, err, one.kind, one.name)
			}
			if one.refused {
				require.Len(t, f.refused, f.happened[action], one.name)
			}
			lost := f.arrived.lost(messages)
			require.Len(t, lost, len(f.refused), "%s: %v", one.name, lost)
			verdict := "lost 0"
			if one.refused {
				verdict = fmt.Sprintf("refused for good as %v, the others lost 0", one.kind)
			}
			seen(t, "%s, %d times: %d messages, %s, %d sent again, %d came twice, %d connections, last loss: %v",
				one.name, f.happened[action], messages, verdict, stats.Resent, f.arrived.duplicates(), stats.Connections,
				stats.LastError)
		}
	})
}

// All actions at once, drawn from a seed.
func TestRheaAsServerMisbehaves(t *testing.T) {
	t.Parallel()
	const (
		messages = 800
		window   = 64
	)
	eachRheaWay(t, func(t *testing.T, s *rheaServer) {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		var choice []string
		for _, one := range dispositions {
			if !one.refused && one.action != "ignore" {
				choice = append(choice, one.action)
			}
		}
		plan := make([]string, messages)
		for i := range plan {
			plan[i] = "accept"
			if random.IntN(10) == 0 {
				plan[i] = choice[random.IntN(len(choice))]
			}
		}
		s.do("plan", map[string]any{"plan": plan})
		c := openAMQP(t, s.options(), device.Options{Window: window, AckTimeout: 2 * time.Second})
		f := s.follow(t, c, messages, window)
		require.Empty(t, f.refused, "seed %d", seed)
		require.Empty(t, f.arrived.lost(messages), "seed %d", seed)
		stats := c.Stats()
		require.EqualValues(t, messages+1, stats.Acknowledged)
		seen(t, "seed %d: %d messages, %v: lost 0, %d sent again, %d came twice, %d connections",
			seed, messages, f.happened, stats.Resent, f.arrived.duplicates(), stats.Connections)
	})
}

// A broker without credit delays messages, and loses none.
func TestRheaAsServerWithholdsCredit(t *testing.T) {
	eachRheaWay(t, func(t *testing.T, s *rheaServer) {
		paused := make(chan error, 100)
		o := s.options()
		o.CreditTimeout = 300 * time.Millisecond
		c := openAMQP(t, o, device.Options{Window: 8, OnStatus: func(st device.Status) {
			if st.Reason == device.ReasonPaused {
				select {
				case paused <- st.Err:
				default:
				}
			}
		}})
		require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte("opens the link")}))
		s.do("credit", map[string]any{"credit": 0}) // the link's credit is used up
		for i := range 400 {
			require.NoError(t, c.Enqueue(soon(t), numbered(i), nil))
		}
		var why error
		select {
		case why = <-paused:
		case <-time.After(waitLimit):
			t.Fatal("no pause")
		}
		require.ErrorIs(t, why, transport.Throttled)
		require.Positive(t, c.Stats().Queued)
		s.do("credit", map[string]any{"credit": 20})
		require.NoError(t, c.Flush(soon(t)))
		var y tally
		for y.next < 400 {
			if e := s.next("arrived", ""); e.Payload != "opens the link" {
				require.False(t, y.add(e.Payload), "%s came before others", e.Payload)
			}
		}
		stats := c.Stats()
		require.EqualValues(t, 1, stats.Connections)
		seen(t, "no credit: %v; with credit again: 400 messages in order, lost 0, %d came twice, 1 connection", why,
			y.duplicates())
	})
}

// Cloud-to-device messages are settled as the handler decides, and delivered again when their link,
// session or connection is lost.
func TestRheaAsServerSendsCloudToDeviceMessages(t *testing.T) {
	t.Parallel()
	eachRheaWay(t, func(t *testing.T, s *rheaServer) {
		j := newJudge()
		c := createAMQP(t, s.options(), device.Options{})
		c.HandleMessages(j.handle)
		require.NoError(t, c.Open(soon(t)))
		sendC2D := func(body string) {
			s.tell(map[string]any{"do": "command", "message": map[string]any{"payload": body, "message_id": "id of " + body}})
		}
		outcome := func(body, want string) {
			t.Helper()
			s.wait(fmt.Sprintf("%s of %q", want, body),
				func(e event) bool { return e.On == "settled" && e.Payload == body && e.Outcome == want })
		}
		sendC2D("accept 1")
		require.Equal(t, "accept 1 1", j.next(t))
		outcome("accept 1", "accepted")
		sendC2D("release 1")
		require.Equal(t, "release 1 1", j.next(t))
		outcome("release 1", "released")
		require.Equal(t, "release 1 2", j.next(t))
		outcome("release 1", "accepted")
		sendC2D("reject 1")
		require.Equal(t, "reject 1 1", j.next(t))
		outcome("reject 1", "rejected")
		seen(t, "accepted, released and delivered again, rejected: the server saw accepted, released, rejected")

		faults := []map[string]any{
			{"action": "detach", "condition": "amqp:link:detach-forced"}, {"action": "end"},
			{"action": "close", "condition": "amqp:connection:forced"}, {"action": "drop"},
		}
		const n = 200
		settled := map[string]bool{}
		next := 0
		for i := range n {
			sendC2D(fmt.Sprintf("%s bulk %d", []string{"accept", "release", "reject"}[i%3], i))
			if i%25 == 24 {
				s.next("attached", "")
				s.do("strike", faults[next%len(faults)])
				next++
			}
		}
		for len(settled) < n {
			e := s.wait("final outcome",
				func(e event) bool { return e.On == "settled" && (e.Outcome == "accepted" || e.Outcome == "rejected") })
			kind, _, _ := strings.Cut(e.Payload, " ")
			require.Equal(t, map[string]string{"accept": "accepted", "release": "accepted", "reject": "rejected"}[kind],
				e.Outcome, e.Payload)
			require.False(t, settled[e.Payload], "settled twice: %s", e.Payload)
			settled[e.Payload] = true
		}
		stats := c.Stats()
		seen(t, "%d messages through %d losses of link, session or connection: each settled once; %d connections, %d "+
			"delivered again",
			n, next, stats.Connections, stats.Received-n-4)
	})
}
