package dialect

import (
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// topicSession is Topics for one connection, with all placeholders filled in.
type topicSession struct {
	t          *Topics
	properties bool // packets have a place for them
	telemetry  string
	commands   []Filter
	matching   []string // the filters of commands as topics match them
	birth      Publication

	sealed    transport.Message // by the envelope; owned by the caller of Publication
	lastTopic string            // of the latest message that came, most often of the next one too
}

// Session checks t. Its errors are Invalid and name the wrong field.
func (t *Topics) Session(c *Config) (Session, Hello, error) {
	s := &topicSession{t: t, properties: c.Properties}
	var h Hello
	err := s.fill(c, &h)
	return s, h, err
}

// fill checks and fills in the fields of Topics, in their order, and of c.
func (s *topicSession) fill(c *Config, h *Hello) (err error) {
	t := s.t
	if t == nil {
		return mqttwire.Invalid("options: Dialect is a nil *dialect.Topics; give one, or leave Dialect nil for an IoT hub")
	}
	names := ids{device: c.Creds.DeviceID, module: c.Creds.ModuleID}
	if t.Telemetry == "" {
		return mqttwire.Invalid("topics: Telemetry is empty; give the topic of messages, in a broker's URL as " +
			"telemetry=TOPIC")
	}
	if s.telemetry, err = names.topic("Telemetry", t.Telemetry); err != nil {
		return err
	}
	if err := s.subscribe(&names); err != nil {
		return err
	}
	id := t.ClientID
	switch {
	case id == "" && c.Creds.ModuleID == "":
		id = "{device}"
	case id == "":
		id = "{device}/{module}"
	}
	if h.ClientID, err = names.text("ClientID", id); err != nil {
		return err
	}
	if t.Birth != nil {
		if s.birth, err = s.own("topics: Birth", "Birth.Topic", &names, t.Birth); err != nil {
			return err
		}
	}
	if h.MaxSize = t.MaxSize; h.MaxSize == 0 {
		h.MaxSize = transport.MaxMessageSize
	}
	switch user := c.Creds.UserName; {
	case t.MaxSize < 0 || t.MaxSize > transport.MaxMessageSize:
		return mqttwire.Invalid("topics: MaxSize is " + strconv.Itoa(t.MaxSize) +
			"; give a number of bytes up to 262144, or 0 for that")
	case c.ModelID != "":
		return mqttwire.Invalid("options: ModelID is set, and a broker that is no hub has no place for it; leave it empty")
	case len(user) > mqttwire.MaxText || !utf8.ValidString(user) || !texts.Plain(user):
		return mqttwire.Invalid("credentials: UserName is longer than 65535 bytes, not valid UTF-8, or has a control " +
			"character")
	case user == "" && !s.properties && (c.Creds.Token != nil || c.Creds.Sign != nil):
		return mqttwire.Invalid("credentials: there is a token and no UserName; MQTT 3.1.1 sends a password only with a " +
			"user name, so set both")
	default:
		h.UserName = user
	}
	if c.Will != nil {
		if h.Will, err = s.own("options: Will", "Will.Topic", &names, c.Will); err != nil {
			return err
		}
	}
	return nil
}

// subscribe fills in Commands.
func (s *topicSession) subscribe(names *ids) error {
	all := s.t.Commands
	if len(all) > MaxFilters {
		return mqttwire.Invalid("topics: Commands has " + strconv.Itoa(len(all)) + " filters; give " +
			strconv.Itoa(MaxFilters) + " at most, with wildcards")
	}
	for i, template := range all {
		field := "Commands[" + strconv.Itoa(i) + "]"
		filter, err := names.filter(field, template)
		if err != nil {
			return err
		}
		for _, f := range s.commands {
			if f.Topic == filter {
				return names.wrong(field, template, "is there twice; leave one out")
			}
		}
		bare, _ := unshared(filter)
		s.commands, s.matching = append(s.commands, Filter{Topic: filter, QoS: 1}), append(s.matching, bare)
	}
	return nil
}

// own returns the publication of a message of the session's own: Birth or Will.
func (s *topicSession) own(name, field string, names *ids, m *transport.Message) (Publication, error) {
	own := *m
	var err error
	if own.Topic, err = names.topic(field, m.Topic); err != nil {
		return Publication{}, err
	}
	if err := own.Validate(); err != nil {
		return Publication{}, mqttwire.Invalid(name + ": " + err.Error())
	}
	p, refused := s.published(&own, new(transport.Message))
	if refused != nil {
		return p, mqttwire.Invalid(name + ": " + refused.Error())
	}
	return p, nil
}

func (s *topicSession) Publication(m *transport.Message) (Publication, *transport.Error) {
	p, err := s.published(m, &s.sealed)
	p.Retain, p.AtMostOnce = p.Retain || s.t.Retain, p.AtMostOnce || s.t.AtMostOnce
	return p, err
}

// published returns the publication of m, or of the message in its place, for which sealed is the
// memory.
func (s *topicSession) published(m, sealed *transport.Message) (Publication, *transport.Error) {
	switch {
	case s.t.Envelope != nil:
		*sealed = transport.Message{}
		if err := s.seal(sealed, m); err != nil {
			return Publication{}, err
		}
		m = sealed
	case !s.properties && !s.t.DropProperties:
		if field := unsent(m); field != "" {
			return Publication{}, mqttwire.Refused(transport.OpSend, transport.Unsupported, errors.New("message "+field+
				" has no place in MQTT 3.1.1; use MQTT 5, an Envelope, or Topics.DropProperties"))
		}
	}
	if s.properties || s.t.Envelope == nil { // over MQTT 3.1.1 only the body of a sealed message is sent
		if err := operr.NoPlaceOutsideHubs(m, "MQTT"); err != nil {
			err.Proto = mqttwire.Proto
			return Publication{}, err
		}
	}
	p := Publication{Msg: m, Topic: m.Topic, Retain: m.Retain, AtMostOnce: m.AtMostOnce}
	if p.Topic == "" {
		p.Topic = s.telemetry
	}
	return p, nil
}

// unsent returns the name of a field of m that MQTT 3.1.1 has no place for, empty for none. The ID
// is the client's, and Expires has its effect in the client.
func unsent(m *transport.Message) string {
	switch {
	case len(m.Properties) > 0:
		return "Properties"
	case m.CorrelationID != "":
		return "CorrelationID"
	case m.ContentType != "":
		return "ContentType"
	case m.ContentEncoding != "":
		return "ContentEncoding"
	case m.Component != "":
		return "Component"
	case m.ResponseTopic != "":
		return "ResponseTopic"
	case !m.Created.IsZero():
		return "Created"
	}
	return ""
}

// seal calls the envelope.
func (s *topicSession) seal(dst, m *transport.Message) *transport.Error {
	var refused *transport.Error
	if failed := callback.Run("Topics.Envelope.Seal", func() {
		if err := s.t.Envelope.Seal(dst, m, s.properties); err != nil {
			refused = sealError(err) // may panic, as the methods of err may
		}
	}); failed != nil {
		refused = sealError(failed)
	}
	switch {
	case refused != nil:
		return refused
	case dst.Topic != m.Topic && dst.Topic != "" &&
		!(mqttwire.ValidTopic([]byte(dst.Topic)) && texts.Plain(dst.Topic)):
		return sealError(errors.New("Topics.Envelope: Seal set a Topic that is no topic to publish to"))
	}
	return nil
}

// sealError returns err as the error of one message.
func sealError(err error) *transport.Error {
	if e := transport.Find(err); e != nil {
		kept := *e
		kept.Scope, kept.Op, kept.Proto = transport.ScopeOperation, transport.OpSend, mqttwire.Proto
		kept.Err = scrub.Cause(e.Err)
		return &kept
	}
	return mqttwire.Refused(transport.OpSend, transport.Invalid, err)
}

// AppendSuffix has nothing to append: no Publication has a Suffix.
func (s *topicSession) AppendSuffix(dst []byte, _ *transport.Message) []byte { return dst }

func (s *topicSession) Filters(want transport.Features) []Filter {
	if want != transport.FeatureMessages {
		return nil
	}
	return s.commands
}

// Lacks says what a broker that is no hub does not have, and what needs Commands.
func (t *Topics) Lacks(feature transport.Features) string {
	switch {
	case feature != transport.FeatureMessages:
		return "not available from a broker with dialect.Topics; they need an IoT hub"
	case len(t.Commands) == 0:
		return "not available without Commands in dialect.Topics; give the filters of their topics"
	}
	return ""
}

func (s *topicSession) AppendRequest(dst []byte, _ *transport.Request) ([]byte, byte, bool) {
	return dst, 0, false
}

func (s *topicSession) Take(sink transport.Sink, topic []byte, d *transport.Delivery) {
	if !s.subscribed(topic) {
		return
	}
	if string(topic) != s.lastTopic {
		s.lastTopic = string(topic)
	}
	d.Msg.Topic = s.lastTopic
	if s.t.Envelope != nil && callback.Run("Topics.Envelope.Open", func() { s.t.Envelope.Open(d.Msg) }) != nil {
		return // without a Kind it is accepted, so that it keeps none from coming
	}
	d.Kind = transport.FeatureMessages
	sink.Deliver(d)
}

// subscribed reports whether a filter of Commands matches topic.
func (s *topicSession) subscribed(topic []byte) bool {
	for _, filter := range s.matching {
		if matches(filter, topic) {
			return true
		}
	}
	return false
}

// Missed passes a message on without its body. The broker would send it again on each connection,
// and it would hold its place there, so it is acknowledged also without a subscription.
func (s *topicSession) Missed(sink transport.Sink, topic []byte, d *transport.Delivery, _, _ int) {
	d.Name = topic
	if s.subscribed(topic) {
		d.Kind, d.Msg = transport.FeatureMessages, nil
	}
	sink.Deliver(d)
}

// Handshake publishes Birth.
func (s *topicSession) Handshake() Plan {
	if s.birth.Msg == nil {
		return nil
	}
	return &Handshake{Message: s.birth}
}
