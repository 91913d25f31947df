package mqtt_test

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

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// run tests the engine.
func run(t *testing.T, e engine) {
	for name, f := range map[string]func(*testing.T, *broker, engine){
		"telemetry goes to its topic, with QoS and RETAIN": telemetry,
		"all telemetry with QoS 0 and RETAIN":              telemetryByMap,
		"a message with QoS 0 is lost with the connection": lostAtMostOnce,
		"commands come with their topic":                   commands,
		"as many filters as a map may have":                manyFilters,
		"a shared subscription":                            shared,
		"twin and methods are unsupported at once":         unsupported,
		"user name, password and client id":                login,
		"anonymous, with a clean session":                  anonymous,
		"a kept session":                                   keptSession,
		"a will":                                           will,
		"a birth":                                          birth,
		"a birth without an answer":                        birthUnanswered,
		"messages before the birth is acknowledged wait":   early,
		"a handshake with answers":                         handshake,
		"a handshake that fails":                           handshakeFails,
		"an envelope":                                      envelope,
		"a wrong map is refused before the dial":           wrongMap,
	} {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, b *broker) { f(t, b, e) })
		})
	}
}

func upDown() *dialect.Topics {
	return &dialect.Topics{Telemetry: "site/{device}/up", Commands: []string{"site/{device}/down/#", "site/all/+"}}
}

func message(topic, body string) transport.Message {
	return transport.Message{Topic: topic, Body: []byte(body)}
}

func telemetry(t *testing.T, b *broker, e engine) {
	s := start(t, e.New(b.dial, options{Dialect: upDown()}), creds())
	defer s.end()
	once, kept := message("", "c"), message("", "d")
	once.AtMostOnce, kept.Retain = true, true
	require.Equal(t, []error{nil, nil, transport.ErrWritten, nil},
		s.send(message("", "a"), message("other", "b"), once, kept))
	require.Equal(t, []string{"site/dev-1/up a", "other b", "site/dev-1/up c QoS 0", "site/dev-1/up d retained"}, b.log())
	require.Equal(t, []error{transport.ErrWritten}, s.send(once), "alone")
	big := message("", strings.Repeat("x", 300_000))
	require.ErrorIs(t, s.send(big)[0], transport.TooLarge)
}

func telemetryByMap(t *testing.T, b *broker, e engine) {
	m := upDown()
	m.Retain, m.AtMostOnce, m.MaxSize = true, true, 100
	s := start(t, e.New(b.dial, options{Dialect: m}), creds())
	require.EqualValues(t, 100, s.Info().MaxSize)
	require.Equal(t, []error{transport.ErrWritten, transport.ErrWritten}, s.send(message("", "a"), message("x", "b")))
	require.ErrorIs(t, s.send(message("", strings.Repeat("x", 101)))[0], transport.TooLarge)
	s.end()
	s = start(t, e.New(b.dial, options{Dialect: upDown(), AtMostOnce: true}), creds())
	defer s.end()
	require.Equal(t, []error{transport.ErrWritten}, s.send(message("", "c")))
	require.Equal(t, []string{"site/dev-1/up a QoS 0 retained", "x b QoS 0 retained", "site/dev-1/up c QoS 0"}, b.log())
}

func lostAtMostOnce(t *testing.T, b *broker, e engine) {
	s := start(t, e.New(b.dial, options{Dialect: upDown(), AtMostOnce: true}), creds())
	synctest.Wait()
	b.net.Last().SetBuffer(0)
	b.pull()
	require.Equal(t, []error{errPending, errPending}, s.send(message("", "a"), message("", "b")))
	require.Equal(t, transport.Network, transport.KindOf(<-s.ran))
}

func commands(t *testing.T, b *broker, e engine) {
	require.NoError(t, b.server.Publish("site/all/config", []byte("kept"), true, 1))
	s := start(t, e.New(b.dial, options{Dialect: upDown()}), creds())
	defer s.end()
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	b.send("site/dev-1/down", "a", 1)
	b.send("site/dev-1/down/x/y", "b", 0)
	b.send("site/dev-1/down/x/y", "c", 2)
	b.send("site/dev-2/down", "not ours", 1)
	b.send("site/all/x", "d", 1)
	require.Equal(t, []string{"site/all/config kept retained", "site/dev-1/down a", "site/dev-1/down/x/y b",
		"site/dev-1/down/x/y c", "site/all/x d"}, s.bodies())
	require.Empty(t, s.sink.Refs[2], "QoS 0")
	require.Equal(t, 4, b.inFlight(deviceID))
	s.settleAll()
	require.Zero(t, b.inFlight(deviceID))

	// A broker may send what no filter asks for, such as messages of an earlier program's session.
	c, _ := b.server.Clients.Get(deviceID)
	b.server.Topics.Subscribe(deviceID, b.subscribed[0][0])
	sub := b.subscribed[0][0]
	sub.Filter = "elsewhere"
	b.server.Topics.Subscribe(c.ID, sub)
	b.send("elsewhere", "nobody asked", 1)
	require.Len(t, s.bodies(), 5)
	s.settleAll()
	require.Zero(t, b.inFlight(deviceID), "else it takes the place of a message that is asked for")
}

func manyFilters(t *testing.T, b *broker, e engine) {
	m := upDown()
	for len(m.Commands) < dialect.MaxFilters {
		m.Commands = append(m.Commands, "extra/"+strconv.Itoa(len(m.Commands)))
	}
	s := start(t, e.New(b.dial, options{Dialect: m}), creds())
	defer s.end()
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	b.send("extra/31", "a", 1)
	require.Equal(t, []string{"extra/31 a"}, s.bodies())
}

func shared(t *testing.T, b *broker, e engine) {
	m := &dialect.Topics{Telemetry: "up", Commands: []string{"$share/group/work/+"}}
	var all []*session
	for _, id := range []string{"dev-1", "dev-2"} {
		c := creds()
		c.DeviceID = id
		s := start(t, e.New(b.dial, options{Dialect: m}), c)
		defer s.end()
		require.NoError(t, s.subscribe(transport.FeatureMessages))
		all = append(all, s)
	}
	for range 10 {
		b.send("work/x", "job", 1)
	}
	require.Equal(t, 10, len(all[0].bodies())+len(all[1].bodies()))
}

func unsupported(t *testing.T, b *broker, e engine) {
	s := start(t, e.New(b.dial, options{Dialect: &dialect.Topics{Telemetry: "up"}}), creds())
	defer s.end()
	for _, r := range []transport.Request{
		{Op: transport.OpTwinGet}, {Op: transport.OpTwinPatch, Body: []byte("{}")},
		{Op: transport.OpIssue, Ref: []byte("1")}, {Op: transport.OpRenew},
	} {
		require.ErrorIs(t, s.do(r), transport.Unsupported, r.Op)
	}
	for want := transport.FeatureMessages; want < 2*transport.FeatureCertificates; want++ {
		require.ErrorIs(t, s.subscribe(want), transport.Unsupported, want)
	}
	require.NoError(t, s.subscribe(0))
	require.Empty(t, b.subscribed)
	if e.MQTT5 {
		return
	}
	for field, m := range map[string]transport.Message{
		"Properties":    {Properties: []transport.Property{{Name: "a"}}},
		"CorrelationID": {CorrelationID: "x"}, "ContentType": {ContentType: "x"}, "ContentEncoding": {ContentEncoding: "x"},
		"Component": {Component: "x"}, "ResponseTopic": {ResponseTopic: "x"}, "Created": {Created: time.Now()},
	} {
		err := s.send(m)[0]
		require.ErrorIs(t, err, transport.Unsupported, field)
		require.ErrorContains(t, err, "message "+field+" has no place")
		require.Equal(t, transport.ScopeOperation, transport.Find(err).Scope)
	}
	require.Empty(t, b.log())
	s.end()
	s.ran <- nil
	drop := start(t, e.New(b.dial, options{Dialect: &dialect.Topics{Telemetry: "up", DropProperties: true}}), creds())
	defer drop.end()
	require.Equal(t, make([]error, 1), drop.send(transport.Message{ContentType: "x", Body: []byte("y")}))
	require.Equal(t, []string{"up y"}, b.log())
}

func login(t *testing.T, b *broker, e engine) {
	b.password = "secret"
	m := upDown()
	m.ClientID = "site-{device}/{module}"
	c := creds()
	c.ModuleID, c.UserName, c.Token = "mod", "me", transport.FixedToken("secret")
	s := start(t, e.New(b.dial, options{Dialect: m}), c)
	require.True(t, s.Info().Expires.IsZero())
	s.end()
	p := b.connects[0].Connect
	require.Equal(t, "site-dev-1/mod", p.ClientIdentifier)
	require.Equal(t, "me", string(p.Username))
	require.False(t, p.Clean)
	c.Token = transport.FixedToken("wrong")
	_, err := dialed(e.New(b.dial, options{Dialect: m}), c)
	require.ErrorIs(t, err, transport.Unauthorized)
	require.NotContains(t, err.Error(), "wrong")
	m = upDown()
	c.Token = transport.FixedToken("secret")
	start(t, e.New(b.dial, options{Dialect: m}), c).end()
	require.Equal(t, "dev-1/mod", b.connects[2].Connect.ClientIdentifier)
}

func anonymous(t *testing.T, b *broker, e engine) {
	s := start(t, e.New(b.dial, options{Dialect: upDown(), CleanSession: true}), creds())
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	s.end()
	p := b.connects[0].Connect
	require.False(t, p.UsernameFlag || p.PasswordFlag)
	require.True(t, p.Clean)
	b.send("site/dev-1/down", "lost", 1)
	s = start(t, e.New(b.dial, options{Dialect: upDown(), CleanSession: true}), creds())
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	require.Empty(t, s.bodies())
	s.end()
}

func keptSession(t *testing.T, b *broker, e engine) {
	skipIDsFromOne(t, e)
	tr := e.New(b.dial, options{Dialect: upDown()})
	s := start(t, tr, creds())
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	s.end()
	b.send("site/dev-1/down", "while away", 1)
	s = start(t, tr, creds())
	require.Equal(t, []string{"site/dev-1/down while away"}, s.bodies(), "without a new subscription")
	// with another id than that of the message, which waits for its PUBACK
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	s.end()
}

func will(t *testing.T, b *broker, e engine) {
	w := message("state/{device}", "gone")
	w.Retain = true
	tr := e.New(b.dial, options{Dialect: upDown(), Will: &w})
	start(t, tr, creds()).end()
	require.False(t, b.kept("state/dev-1"), "the device said good-bye")
	s := start(t, tr, creds())
	b.pull()
	<-s.ran
	require.True(t, b.kept("state/dev-1"))
	will := b.connects[1].Connect
	require.EqualValues(t, 1, will.WillQos)
}

// kept reports whether the broker keeps a message on topic.
func (b *broker) kept(topic string) bool {
	synctest.Wait()
	return len(b.server.Topics.Messages(topic)) == 1
}

func birth(t *testing.T, b *broker, e engine) {
	m := upDown()
	m.Retain = true
	m.Birth = &transport.Message{Topic: "state/{device}", Body: []byte("here")}
	s, err := dialed(e.New(b.dial, options{Dialect: m}), creds())
	require.NoError(t, err)
	require.Equal(t, []string{"state/dev-1 here"}, b.log(), "before Run")
	s.run()
	require.Equal(t, make([]error, 1), s.send(message("", "a")))
	require.Equal(t, []string{"site/dev-1/up a retained"}, b.log())
	require.Empty(t, s.sink.Replies)
	s.end()
}

func birthUnanswered(t *testing.T, b *broker, e engine) {
	m := upDown()
	m.Birth = &transport.Message{Topic: "state", Body: []byte("here")}
	tr := e.New(b.dial, options{Dialect: m})
	b.deaf = true
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	began := time.Now()
	_, err := tr.Dial(ctx, &transport.Config{Creds: creds(), Sink: new(hubfixture.Sink)})
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 5*time.Second, time.Since(began))

	cut := time.AfterFunc(time.Second, func() { b.net.Last().Reset() })
	_, err = dialed(tr, creds())
	cut.Stop()
	require.Equal(t, transport.Network, transport.KindOf(err))
	require.Equal(t, transport.OpDial, transport.Find(err).Op)
	b.mu.Lock()
	b.deaf = false
	b.mu.Unlock()
	start(t, tr, creds()).end()
}

func early(t *testing.T, b *broker, e engine) {
	m := upDown()
	tr := e.New(b.dial, options{Dialect: m})
	s := start(t, tr, creds())
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	s.end()
	want := []string{}
	for i := range 12 {
		body := strings.Repeat(string(rune('a'+i)), 10*i+1)
		b.send("site/dev-1/down", body, 1)
		time.Sleep(time.Second) // mochi sends them again in the order of their seconds
		want = append(want, "site/dev-1/down "+body)
	}
	born := *m
	born.Birth = &transport.Message{Topic: "state", Body: []byte("here")}
	s, err := dialed(e.New(b.dial, options{Dialect: &born}), creds())
	require.NoError(t, err)
	require.Empty(t, s.bodies())
	b.send("site/dev-1/down", "later", 1)
	s.run()
	require.Equal(t, append(want, "site/dev-1/down later"), s.bodies())
	s.settleAll()
	require.Zero(t, b.inFlight(deviceID))
	s.end()
}

// service is the dialect of a made-up service: a device says hello, gets a number of questions, and
// is welcome when it has got "welcome".
type service struct {
	dialect.Topics
	plan dialect.Handshake
}

type serviceSession struct {
	dialect.Session
	plan *dialect.Handshake
}

func (s *service) Session(c *dialect.Config) (dialect.Session, dialect.Hello, error) {
	inner, hello, err := s.Topics.Session(c)
	return &serviceSession{inner, &s.plan}, hello, err
}

func (s *serviceSession) Handshake() dialect.Plan { return s.plan }

func serviceOf(heard *[]string) *service {
	s := &service{Topics: *upDown()}
	s.plan.Filters = []dialect.Filter{{Topic: "service/+", QoS: 1}}
	s.plan.Message = dialect.Publication{Topic: "hello", Msg: &transport.Message{Body: []byte("I am new")}}
	s.plan.Answer = func(topic []byte, m *transport.Message) (mine, done bool, err error) {
		if !strings.HasPrefix(string(topic), "service/") {
			return false, false, nil
		}
		*heard = append(*heard, string(topic)+" "+string(m.Body))
		if string(m.Body) == "leave" {
			return true, false, &transport.Error{Kind: transport.Forbidden, Err: errors.New("not welcome")}
		}
		if string(m.Body) == "fall" {
			return true, false, errors.New("fell")
		}
		return true, string(m.Body) == "welcome", nil
	}
	return s
}

func skipIDsFromOne(t *testing.T, e engine) {
	if e.IDsFromOne {
		t.Skip("mochi refuses a SUBSCRIBE with the packet id of a message of its own in flight")
	}
}

func handshake(t *testing.T, b *broker, e engine) {
	if e.NoAnswers {
		_, err := dialed(e.New(b.dial, options{Dialect: serviceOf(new([]string))}), creds())
		require.ErrorIs(t, err, transport.Unsupported)
		return
	}
	s := start(t, e.New(b.dial, options{Dialect: upDown()}), creds())
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	s.end()
	b.send("site/dev-1/down", "first", 1)
	b.log()

	var heard []string
	go func() {
		time.Sleep(time.Second)
		b.send("service/a", "who?", 1)
		b.send("site/dev-1/down", "second", 1)
		b.send("service/b", "why?", 0)
		time.Sleep(time.Second)
		b.send("service/c", "welcome", 1)
		b.send("service/d", "after", 1)
		b.send("site/dev-1/down", "third", 1)
	}()
	began := time.Now()
	s, err := dialed(e.New(b.dial, options{Dialect: serviceOf(&heard)}), creds())
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, time.Since(began))
	require.Equal(t, []string{"service/a who?", "service/b why?", "service/c welcome"}, heard)
	require.Equal(t, []string{"hello I am new"}, b.log())
	s.run()
	require.Equal(t, []string{"site/dev-1/down first", "site/dev-1/down second", "site/dev-1/down third"}, s.bodies())
	s.settleAll()
	require.Zero(t, b.inFlight(deviceID), "answers are acknowledged, and so is what came after the handshake")
	require.Equal(t, make([]error, 1), s.send(message("", "a")))
	s.end()
}

func handshakeFails(t *testing.T, b *broker, e engine) {
	if e.NoAnswers {
		t.Skip("the engine refuses handshakes with answers, which the test before this one checks")
	}
	for says, kind := range map[string]transport.Kind{"leave": transport.Forbidden, "fall": transport.Unavailable} {
		var heard []string
		go func() {
			time.Sleep(time.Second)
			b.send("service/a", says, 1)
		}()
		_, err := dialed(e.New(b.dial, options{CleanSession: true, Dialect: serviceOf(&heard)}), creds())
		require.Equal(t, kind, transport.KindOf(err), "%v", err)
		require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
		require.Equal(t, transport.OpDial, transport.Find(err).Op)
		synctest.Wait() // the broker has noticed the end: it confuses two connections of a client
	}
	b.denied = "service/+"
	_, err := dialed(e.New(b.dial, options{CleanSession: true, Dialect: serviceOf(nil)}), creds())
	denied := transport.Unavailable // the code of MQTT 3.1.1 gives no reason
	if e.MQTT5 {
		denied = transport.Forbidden
	}
	require.Equal(t, denied, transport.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "for service/+")
	large := serviceOf(nil)
	large.plan.Filters, large.plan.Message.Msg.Body = nil, make([]byte, 300_000)
	_, err = dialed(e.New(b.dial, options{Dialect: large}), creds())
	require.Equal(t, transport.TooLarge, transport.KindOf(err), "%v", err)
}

// shout is an envelope.
type shout struct{}

func (shout) Seal(dst, m *transport.Message, properties bool) error {
	if string(m.Body) == "panic" {
		panic("no")
	}
	if len(m.Body) == 0 {
		return &transport.Error{Kind: transport.TooLarge, Err: errors.New("too little")}
	}
	if string(m.Body) == "astray" {
		dst.Topic = "a/+"
		return nil
	}
	*dst = transport.Message{Body: []byte(strings.ToUpper(string(m.Body)) + m.ContentType), Topic: m.Topic,
		Retain: m.Retain, AtMostOnce: m.AtMostOnce}
	return nil
}

func (shout) Open(m *transport.Message) {
	if string(m.Body) == "PANIC" {
		panic("no")
	}
	m.Body = []byte(strings.ToLower(string(m.Body)))
}

func envelope(t *testing.T, b *broker, e engine) {
	m := upDown()
	m.Envelope = shout{}
	m.Birth = &transport.Message{Topic: "state", Body: []byte("born")}
	s := start(t, e.New(b.dial, options{Dialect: m}), creds())
	defer s.end()
	require.Equal(t, []error{nil, transport.ErrWritten}, s.send(transport.Message{ContentType: "type", Body: []byte("a")},
		transport.Message{Topic: "x", Body: []byte("b"), Retain: true, AtMostOnce: true}))
	require.Equal(t, []string{"state BORN", "site/dev-1/up Atype", "x B QoS 0 retained"}, b.log())
	bad := s.send(message("", "panic"), message("", ""), message("", "astray"), message("", "fine"))
	require.ErrorIs(t, bad[0], transport.Invalid)
	require.ErrorIs(t, bad[1], transport.TooLarge)
	require.ErrorIs(t, bad[2], transport.Invalid)
	require.NoError(t, bad[3])
	require.NoError(t, s.subscribe(transport.FeatureMessages))
	b.send("site/all/x", "PANIC", 1)
	b.send("site/all/x", "QUIET", 1)
	require.Equal(t, []string{"site/all/x quiet"}, s.bodies())
	s.settleAll()
	require.Zero(t, b.inFlight(deviceID), "a message that cannot be opened takes no place among the others")
}

func wrongMap(t *testing.T, _ *broker, e engine) {
	never := func(context.Context) (net.Conn, error) {
		t.Error("it dials")
		return nil, errors.New("no network")
	}
	_, err := dialed(e.New(never, options{Dialect: new(dialect.Topics)}), creds())
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "Telemetry is empty")
}
