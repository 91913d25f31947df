package dialect_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// moduleCreds are the credentials of the tests.
func moduleCreds() transport.Credentials {
	return transport.Credentials{Host: "h", DeviceID: "dev", ModuleID: "mod", UserName: "me"}
}

func TestTopicsFillInPlaceholders(t *testing.T) {
	creds := moduleCreds()
	birth := &transport.Message{Topic: "{module}/born", Body: []byte("b"), Retain: true}
	will := &transport.Message{Topic: "{module}/gone", Body: []byte("w"), AtMostOnce: true}
	topics := &dialect.Topics{Telemetry: "a/{device}/{module}", Commands: []string{"{device}/+", "$share/{module}/x/#"},
		ClientID: "{device}.{module}", Birth: birth, MaxSize: 1000, Retain: true}
	s, hello, err := topics.Session(&dialect.Config{Creds: &creds, Will: will})
	require.NoError(t, err)
	w := hello.Will
	hello.Will = dialect.Publication{}
	require.Equal(t, dialect.Hello{ClientID: "dev.mod", UserName: "me", MaxSize: 1000}, hello)
	require.Equal(t, "mod/gone w", w.Topic+" "+string(w.Msg.Body))
	require.True(t, w.AtMostOnce && !w.Retain)
	h := s.(dialect.Handshaker).Handshake().(*dialect.Handshake)
	require.Nil(t, h.Filters)
	require.Equal(t, "mod/born b", h.Message.Topic+" "+string(h.Message.Msg.Body))
	require.True(t, h.Message.Retain && !h.Message.AtMostOnce)
	require.Equal(t, "{module}/born", birth.Topic, "the options are left alone")
	require.Equal(t, []dialect.Filter{{Topic: "dev/+", QoS: 1}, {Topic: "$share/mod/x/#", QoS: 1}},
		s.Filters(transport.FeatureMessages))
	p, refused := s.Publication(&transport.Message{})
	require.Nil(t, refused)
	require.Equal(t, "a/dev/mod", p.Topic)
	require.True(t, p.Retain)
	require.Equal(t, &sink{}, takeBy(s, "dev", ""))
	require.Equal(t, "x/y", takeBy(s, "x/y", "").delivery.Msg.Topic)
}

func TestWrongTopicsNameTheField(t *testing.T) {
	long := strings.Repeat("x", 65536)
	many := make([]string, dialect.MaxFilters+1)
	for i := range many {
		many[i] = strings.Repeat("x", i+1)
	}
	type topics = dialect.Topics
	for want, c := range map[string]struct {
		t topics
		c func(*dialect.Config)
	}{
		`topics: Telemetry "a/+" is no topic`:                       {t: topics{Telemetry: "a/+"}},
		`topics: Telemetry "a#" is no topic`:                        {t: topics{Telemetry: "a#"}},
		`topics: Telemetry "a/{dev}" `:                              {t: topics{Telemetry: "a/{dev}"}},
		`topics: Telemetry "a/{device" `:                            {t: topics{Telemetry: "a/{device"}},
		`topics: Telemetry "\xff" is not valid UTF-8`:               {t: topics{Telemetry: "\xff"}},
		`topics: Telemetry has 65536 bytes`:                         {t: topics{Telemetry: long}},
		`topics: Commands[1] "a/#/b" is no topic filter`:            {t: topics{Commands: []string{"a", "a/#/b"}}},
		`topics: Commands[0] "" is no topic filter`:                 {t: topics{Commands: []string{""}}},
		`topics: Commands[0] "$share/g" is no topic filter`:         {t: topics{Commands: []string{"$share/g"}}},
		`topics: Commands[0] "$share//x" is no shared subscription`: {t: topics{Commands: []string{"$share//x"}}},
		`topics: Commands[1] "{device}" is there twice`: {t: topics{Commands: []string{"dev",
			"{device}"}}},
		`topics: Commands has 33 filters`:    {t: topics{Commands: many}},
		`topics: ClientID "{id}" `:           {t: topics{ClientID: "{id}"}},
		`topics: Birth.Topic "" is no topic`: {t: topics{Birth: &transport.Message{}}},
		`topics: Birth: send: invalid: message ID`: {t: topics{Birth: &transport.Message{Topic: "a",
			ID: "\xff"}}},
		`topics: Birth: mqtt send: unsupported: message ContentType`: {t: topics{Birth: &transport.Message{Topic: "a",
			ContentType: "x"}}},
		`topics: MaxSize is -1`:     {t: topics{MaxSize: -1}},
		`topics: MaxSize is 262145`: {t: topics{MaxSize: 262145}},
		`options: ModelID is set`: {c: func(c *dialect.Config) {
			c.ModelID = "dtmi:x;1"
		}},
		`credentials: UserName is longer`: {c: func(c *dialect.Config) {
			c.Creds.UserName = long
		}},
		`topics: Will.Topic "" is no topic`: {c: func(c *dialect.Config) {
			c.Will = &transport.Message{}
		}},
		`credentials: DeviceID "d+1" cannot stand in topics.Telemetry`: {t: topics{Telemetry: "{device}"},
			c: func(c *dialect.Config) { c.Creds.DeviceID = "d+1" }},
		`credentials: ModuleID "m#1" cannot stand in topics.Commands[0]`: {t: topics{Commands: []string{"{module}"}},
			c: func(c *dialect.Config) { c.Creds.ModuleID = "m#1" }},
		`topics: Telemetry is empty; give the topic of messages, in a broker's URL as telemetry=TOPIC`: {},
		`topics: Telemetry "{module}" `: {t: topics{Telemetry: "{module}"},
			c: func(c *dialect.Config) { c.Creds.ModuleID = "" }},
		`credentials: there is a token and no UserName; MQTT 3.1.1 sends a`: {c: func(c *dialect.Config) {
			c.Creds.UserName, c.Creds.Token = "", transport.FixedToken("x")
		}},
	} {
		creds := moduleCreds()
		cfg := &dialect.Config{Creds: &creds}
		if c.c != nil {
			c.c(cfg)
		}
		if c.t.Telemetry == "" && !strings.Contains(want, "Telemetry") {
			c.t.Telemetry = "t"
		}
		_, _, err := c.t.Session(cfg)
		require.ErrorIs(t, err, transport.Invalid, want)
		require.ErrorContains(t, err, want)
	}
	creds := transport.Credentials{Host: "h", DeviceID: "d+1"}
	_, hello, err := (&topics{Telemetry: "t"}).Session(&dialect.Config{Creds: &creds})
	require.NoError(t, err, "a client id takes any id")
	require.Equal(t, "d+1", hello.ClientID)
	_, _, err = (*topics)(nil).Session(&dialect.Config{Creds: &creds})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "nil *dialect.Topics")
}

// With a place for properties, as in MQTT 5, a password needs no user name and no field is refused.
func TestTopicsWithAPlaceForProperties(t *testing.T) {
	creds := transport.Credentials{Host: "h", DeviceID: "d", Token: transport.FixedToken("x")}
	s, hello, err := (&dialect.Topics{Telemetry: "t"}).Session(&dialect.Config{Creds: &creds, Properties: true})
	require.NoError(t, err)
	require.Empty(t, hello.UserName)
	m := &transport.Message{ContentType: "x", Created: time.Now(), Properties: []transport.Property{{Name: "a"}}}
	p, refused := s.Publication(m)
	require.Nil(t, refused)
	require.Equal(t, dialect.Publication{Msg: m, Topic: "t"}, p)
}

func TestAMessageOverATopicMapAllocatesNothing(t *testing.T) {
	creds := moduleCreds()
	topics := &dialect.Topics{Telemetry: "up", Commands: []string{"a/b", "down/+/#"}}
	s, _, err := topics.Session(&dialect.Config{Creds: &creds})
	require.NoError(t, err)
	m, body, topic := &transport.Message{ID: "m"}, []byte("x"), []byte("down/x/y")
	var in mqttwire.Inbound
	k := new(sink)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if p, refused := s.Publication(m); refused != nil || p.Topic != "up" {
			t.Error(p, refused)
		}
		s.Take(k, topic, in.Delivery(body, 7, false, false))
	}))
	require.Equal(t, "down/x/y", k.delivery.Msg.Topic)
}

// picky is an envelope.
type picky struct{ err error }

func (p picky) Seal(dst, m *transport.Message, _ bool) error { dst.Body = m.Body; return p.err }
func (picky) Open(*transport.Message)                        {}

func TestAnErrorOfAnEnvelopeKeepsItsKind(t *testing.T) {
	for want, err := range map[transport.Kind]error{
		transport.Invalid: errors.New("no sig=abc1"), transport.Forbidden: &transport.Error{Kind: transport.Forbidden,
			Scope: transport.ScopeConnection, Op: transport.OpDial, Err: errors.New("no sig=abc1")},
	} {
		creds := moduleCreds()
		topics := &dialect.Topics{Telemetry: "up", Envelope: picky{err}}
		s, _, failed := topics.Session(&dialect.Config{Creds: &creds})
		require.NoError(t, failed)
		_, refused := s.Publication(new(transport.Message))
		require.Equal(t, want, refused.Kind)
		require.Equal(t, transport.ScopeOperation, refused.Scope)
		require.Equal(t, transport.OpSend, refused.Op)
		require.EqualError(t, refused.Err, "no sig=(hidden)")
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestAnErrorOfAnEnvelopeMayPanic(t *testing.T) {
	creds := moduleCreds()
	topics := &dialect.Topics{Telemetry: "up", Envelope: picky{(*nilError)(nil)}}
	s, _, failed := topics.Session(&dialect.Config{Creds: &creds})
	require.NoError(t, failed)
	_, refused := s.Publication(new(transport.Message))
	require.Equal(t, transport.Invalid, refused.Kind)
	require.ErrorContains(t, refused, "an error whose Error method panics")
}
