package observe_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/observe"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// journal is the output of a logger.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := connack.ReplaceAllString(j.text.String(), "$1") // the text is the transport's
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// logger writes to a journal without times.
func logger(level slog.Leveler) (*slog.Logger, *journal) {
	j := &journal{}
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string,
		a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{}
		}
		return a
	}})), j
}

// loggedOverMQTT returns a client connected to a hub in memory.
func loggedOverMQTT(t *testing.T, o *device.Options) (*testbroker.Hub, *device.Client) {
	t.Helper()
	hub, err := testbroker.New(&testbroker.Options{Seed: 1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = hub.Close() })
	_, err = hub.AddDevice("dev-1")
	require.NoError(t, err)
	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	require.NoError(t, err)
	return hub, newClient(t, creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortMQTT)}}), o)
}

func TestAnOutageIsAStoryInFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelInfo)
		o := &device.Options{}
		observe.Log(o, l)
		hub, c := loggedOverMQTT(t, o)
		hub.Inject(fault.Fault{Kind: fault.RefuseConnect})
		require.NoError(t, c.Open(t.Context()))
		time.Sleep(time.Minute)
		hub.Inject(fault.Fault{Kind: fault.RefuseConnect})
		hub.Drop("dev-1")
		time.Sleep(time.Minute)
		require.NoError(t, c.Reconnect())
		time.Sleep(time.Minute)
		require.NoError(t, c.Close())

		lines := j.lines()
		require.Len(t, lines, 8)
		refused :=
			`reason="attempt failed" retry=1 delay=100ms error="mqtt dial: service unavailable: CONNACK 3" kind="service ` +
				`unavailable" scope=connection op=dial proto=mqtt hint="the service is restarting or moving and will be back"`
		require.Equal(t, `level=WARN msg="an attempt to connect to the hub failed" state=retrying `+refused, lines[0])
		require.Equal(t, `level=INFO msg="the connection to the hub is up" state=connected reason="connection ok" retry=1`,
			lines[1])
		require.Regexp(t,
			`^level=WARN msg="the connection to the hub was lost" state=retrying reason="connection lost" retry=1 `+
				`delay=100ms error="mqtt connection: network failure: .*" kind="network failure" scope=connection `+
				`op=connection proto=mqtt hint="connections come back"$`, lines[2])
		require.Contains(t, lines[3], `reason="attempt failed" retry=2 delay=150ms`)
		require.Contains(t, lines[4], `state=connected`)
		require.Equal(t, `level=INFO msg="replacing the connection on request" state=retrying reason=planned`, lines[5])
		require.Equal(t, `level=INFO msg="the connection to the hub is up" state=connected reason="connection ok"`, lines[6])
		require.Equal(t, `level=INFO msg="the client was closed" state=disconnected reason="client closed"`, lines[7])
	})
}

func TestTheEndIsAnError(t *testing.T) {
	for _, row := range []struct {
		name string
		o    device.Options
		cut  bool // the hub hangs up on each CONNECT; otherwise the device is disabled
		want string
	}{
		{
			"not retryable", device.Options{}, false,
			`level=ERROR msg="the connection failed, and a retry cannot help" state=disconnected reason="not ` +
				`retryable" error="mqtt dial: unauthorized: CONNACK 5" kind=unauthorized scope=connection op=dial proto=mqtt ` +
				`hint="the same credentials would be refused again; check key or certificate chain, device id, the clock, and ` +
				`that the device is enabled"`,
		},
		{
			"begins anew later", device.Options{TryAgainAfter: time.Hour}, false,
			`level=ERROR msg="the connection failed, and a retry cannot help" state=retrying reason="not retryable" ` +
				`delay=1h0m0s error=`,
		},
		{
			"retries ended", device.Options{RetryPolicy: retrypolicy.NoRetry{}}, true,
			`level=ERROR msg="the retries ended without a connection" state=disconnected reason="retries ended" retry=1 ` +
				`error="mqtt dial: retries ended: stopped by the retry policy: mqtt dial: network failure: `,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				l, j := logger(slog.LevelInfo)
				observe.Log(&row.o, l)
				hub, c := loggedOverMQTT(t, &row.o)
				if row.cut {
					hub.Inject(fault.Fault{Kind: fault.DropConnect, Times: -1})
				} else {
					require.NoError(t, hub.SetEnabled("dev-1", false))
				}
				require.NoError(t, c.Start())
				synctest.Wait()
				lines := j.lines()
				require.Len(t, lines, 1)
				require.True(t, strings.HasPrefix(lines[0], row.want), lines[0])
				if row.cut {
					require.Contains(t, lines[0], ` kind="retries ended" cause="network failure" scope=connection `)
				}
			})
		})
	}
}

func TestAPauseShowsTheDelayOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelWarn)
		o := &device.Options{}
		observe.Log(o, l)
		refusals := 1
		c := newClient(t, creds, &scripted{Verdict: func(*transport.Message) error {
			if refusals--; refusals < 0 {
				return nil
			}
			e := scriptedFailure(transport.Throttled, transport.ScopeOperation)
			e.RetryAfter = 20 * time.Second
			return e
		}}, o)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.Equal(t, []string{
			`level=WARN msg="the hub refused a message for the moment, sending is paused" state=connected reason=paused ` +
				`retry=1 delay=20s error="scripted send: throttled: as the script says" kind=throttled scope=operation op=send ` +
				`proto=scripted retry_after=20s hint="the service takes more when it gets less: wait"`,
		}, j.lines())
	})
}

func TestFlappingNamesASuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelWarn)
		o := &device.Options{}
		observe.Log(o, l)
		tr := &scripted{}
		c := newClient(t, creds, tr, o)
		require.NoError(t, c.Open(t.Context()))
		for range 3 {
			tr.Lose()
			time.Sleep(time.Second)
		}
		lines := j.lines()
		require.Len(t, lines, 3)
		require.True(t, strings.HasSuffix(lines[1], " flaps=2"), lines[1])
		require.Contains(t, lines[2], `hint="another program may be using the same device id; stop it, or give it an id of `)
		require.True(t, strings.HasSuffix(lines[2], " flaps=3"), "the hint names the suspect: %s", lines[2])
	})
}

func TestDebugLogsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelDebug)
		o := &device.Options{}
		handle := func(_ context.Context, m *transport.Message) error {
			switch string(m.Body) {
			case "reject":
				return device.ErrReject
			case "panic":
				panic(errors.New("token=geheim"))
			}
			return nil
		}
		observe.Log(o, l)
		tr := &scripted{OnDial: func(n int) error {
			if n == 1 {
				return scriptedFailure(transport.Timeout, transport.ScopeConnection)
			}
			return nil
		}}
		c := newClient(t, creds, tr, o)
		c.HandleMessages(handle)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		for _, body := range []string{"accept", "reject", "panic"} {
			require.True(t, tr.Deliver(body))
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		tr.Lose()
		synctest.Wait()

		all := strings.Join(j.lines(), "\n")
		for _, want := range []string{
			`level=DEBUG msg="connecting to the hub" state=retrying reason=connecting`,
			`level=DEBUG msg="retry policy decided" again=true retry=1 delay=100ms elapsed=0s kind="timed out" scope=connection`,
			`level=DEBUG msg="session up" took=0s`,
			`level=DEBUG msg="messages handed over" messages=1`,
			`level=DEBUG msg="verdict handed over" outcome=accept`,
			`level=DEBUG msg="verdict handed over" outcome=reject`,
			`level=DEBUG msg="verdict handed over" outcome=release`,
			`level=ERROR msg="a handler panicked" panic="token=(hidden)"`,
			`level=DEBUG msg="session ended" up=10s error="scripted connection: network failure: as the script says" ` +
				`kind="network failure" scope=connection op=connection proto=scripted`,
		} {
			require.Contains(t, all, want+"\n")
		}
	})
}

func TestAClockJumpIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelInfo)
		o := &device.Options{}
		observe.Log(o, l)
		var mu sync.Mutex
		ahead := time.Duration(0)
		own := *creds
		own.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(ahead)
		}
		c := newClient(t, &own, &scripted{}, o)
		require.NoError(t, c.Open(t.Context()))
		mu.Lock()
		ahead = time.Hour
		mu.Unlock()
		time.Sleep(time.Minute)
		all := strings.Join(j.lines(), "\n")
		require.Contains(t, all, `level=INFO msg="the clock jumped" by=1h0m0s`)
		require.Contains(t, all,
			`level=INFO msg="replacing the connection after a clock jump" state=retrying reason="clock jumped"`)
	})
}

func TestTheUsersHooksRunToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelDebug)
		var mu sync.Mutex
		heard := map[string]int{}
		hear := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			heard[what]++
		}
		trace := device.Trace{
			Connected:      func(transport.Info, time.Duration) { hear("connected") },
			SessionEnd:     func(error, time.Duration) { hear("end") },
			Decision:       func(retrypolicy.Attempt, retrypolicy.Decision) { hear("decision") },
			Sent:           func(int) { hear("sent") },
			Settled:        func(transport.Outcome) { hear("settled") },
			HandlerPanic:   func(any) { hear("panic") },
			InputUnhandled: func(string) { hear("unhandled") },
			ClockJump:      func(time.Duration) { hear("jump") },
		}
		o := &device.Options{OnStatus: func(device.Status) { hear("status") }, Trace: &trace}
		observe.Log(o, l)
		require.NotSame(t, &trace, o.Trace)
		observe.Log(o, l) // a second logger is a hook like any other
		o.OnStatus(device.Status{State: device.StateConnected, Reason: device.ReasonConnectionOK})
		o.Trace.Connected(transport.Info{Window: 7, Expires: time.Now()}, time.Second)
		o.Trace.SessionEnd(nil, time.Second)
		o.Trace.Decision(retrypolicy.Attempt{After: time.Second}, retrypolicy.Decision{})
		o.Trace.Sent(1)
		o.Trace.Settled(transport.Outcome(200))
		o.Trace.HandlerPanic(struct{ key string }{"geheim"})
		o.Trace.HandlerPanic(&transport.Error{Kind: transport.NotFound, Op: transport.OpSettle})
		o.Trace.HandlerPanic(&transport.Error{Kind: transport.Quota, Op: transport.OpSend}) // what a handler panics with
		o.Trace.InputUnhandled("in-1")
		o.Trace.ClockJump(time.Hour)
		require.Equal(t, map[string]int{"status": 1, "connected": 1, "end": 1, "decision": 1, "sent": 1, "settled": 1,
			"panic": 3, "unhandled": 1, "jump": 1}, heard)
		require.Len(t, j.lines(), 22)
		all := strings.Join(j.lines(), "\n")
		require.Contains(t, all, `msg="session up" took=1s window=7 expires=2000-01-01T`)
		require.Contains(t, all, `msg="a handler panicked" panic="a struct { key string }"`)
		require.Contains(t, all, `level=ERROR msg="a handler panicked" panic="send: quota`)
		require.Contains(t, all, `level=WARN msg="an incoming message was not handled" error="`)
		require.Contains(t, all, `scope=operation retry_after=1s`)
		require.Contains(t, all, `outcome="undefined outcome"`)
		require.Contains(t, all, `level=WARN msg="a message came by an input without a handler" input=in-1`)
	})
}

// logTo returns options whose callbacks log to l.
func logTo(l *slog.Logger) *device.Options {
	o := new(device.Options)
	observe.Log(o, l)
	return o
}

func TestEveryReasonHasALevelAndAText(t *testing.T) {
	seen := map[string]device.Reason{}
	for r := device.Reason(0); r.String() != "undefined"; r++ {
		l, j := logger(slog.LevelDebug)
		logTo(l).OnStatus(device.Status{Reason: r})
		line := j.lines()[0]
		require.NotContains(t, line, `msg="`+r.String()+`"`, "%v is not in the table", r)
		msg, _, _ := strings.Cut(line, " state=")
		require.NotContains(t, seen, msg)
		seen[msg] = r
	}
	l, j := logger(slog.LevelDebug)
	logTo(l).OnStatus(device.Status{Reason: 250})
	logTo(l).OnStatus(device.Status{Reason: 250, Err: errors.New("odd"), Missed: 3})
	require.Equal(t, []string{
		"level=INFO msg=undefined state=disconnected reason=undefined",
		`level=WARN msg="statuses are missing here, OnStatus was too slow" missed=3`,
		`level=WARN msg=undefined state=disconnected reason=undefined error=odd kind="unknown error" hint="the service ` +
			`gave an answer that is not known, and repeating what is not understood may do harm"`,
	}, j.lines())
}

func TestADisabledLevelAllocatesNothing(t *testing.T) {
	l, j := logger(slog.LevelError + 1)
	o := logTo(l)
	status, trace := o.OnStatus, o.Trace
	lost := device.Status{State: device.StateDisconnectedRetrying, Reason: device.ReasonConnectionLost, Retry: 1,
		Err: scriptedFailure(transport.Network, transport.ScopeConnection)}
	var value any = "x"
	allocs := testing.AllocsPerRun(100, func() {
		status(lost)
		trace.Connected(transport.Info{}, time.Second)
		trace.SessionEnd(lost.Err, time.Second)
		trace.Decision(retrypolicy.Attempt{}, retrypolicy.Decision{})
		trace.Sent(64)
		trace.Settled(transport.OutcomeAccept)
		trace.HandlerPanic(value)
		trace.ClockJump(time.Hour)
	})
	require.Zero(t, allocs)
	require.Equal(t, []string{""}, j.lines())
}

func TestTheLevelMayChange(t *testing.T) {
	var level slog.LevelVar
	l, j := logger(&level)
	trace := logTo(l).Trace
	trace.Sent(1)
	level.Set(slog.LevelDebug)
	trace.Sent(2)
	require.Equal(t, []string{`level=DEBUG msg="messages handed over" messages=2`}, j.lines())
}

func TestNoSecretIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelDebug)
		o := &device.Options{}
		observe.Log(o, l)
		hub, c := loggedOverMQTT(t, o)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Close())
		d, err := hub.Device("dev-1")
		require.NoError(t, err)

		own := *creds
		own.Token = func(context.Context) (transport.Token, error) {
			return transport.Token{}, errors.New("GET https://tokens.example/?sig=geheim: 500")
		}
		o = &device.Options{}
		observe.Log(o, l)
		c = newClient(t, &own, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
			Dial: hub.Dial(testbroker.PortMQTT)}}), o)
		require.NoError(t, c.Start())
		synctest.Wait()
		require.NoError(t, c.Close())

		all := strings.Join(j.lines(), "\n")
		require.Contains(t, all, "https://tokens.example/?sig=(hidden)")
		for _, secret := range []string{"geheim", d.PrimaryKey, d.SecondaryKey, "SharedAccessSignature"} {
			require.NotContains(t, all, secret)
		}
	})
}

// A gap is reported even when the status after it is not logged.
func TestGapsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelWarn)
		slow := make(chan struct{})
		o := &device.Options{OnStatus: func(device.Status) { <-slow }}
		observe.Log(o, l)
		c := newClient(t, creds, &scripted{}, o)
		require.NoError(t, c.Open(t.Context()))
		for range 10 {
			require.NoError(t, c.Reconnect())
			time.Sleep(time.Second) // requested attempts have a pace
		}
		close(slow)
		synctest.Wait()
		require.Equal(t, []string{`level=WARN msg="statuses are missing here, OnStatus was too slow" missed=15`}, j.lines())
	})
}

// Many clients share a logger concurrently.
func TestSharedByClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, j := logger(slog.LevelInfo)
		o := &device.Options{}
		observe.Log(o, l)
		for range 8 {
			c := newClient(t, creds, &scripted{}, &device.Options{OnStatus: o.OnStatus, Trace: o.Trace})
			require.NoError(t, c.Start())
		}
		synctest.Wait()
		require.Len(t, j.lines(), 8)
	})
}

func TestNilLoggerIsTheDefault(t *testing.T) {
	l, j := logger(slog.LevelInfo)
	before := slog.Default()
	slog.SetDefault(l)
	defer slog.SetDefault(before)
	o := &device.Options{}
	observe.Log(o, nil)
	o.OnStatus(device.Status{Reason: device.ReasonClientClosed})
	o.Trace.ClockJump(time.Minute)
	require.Len(t, j.lines(), 2)
}
