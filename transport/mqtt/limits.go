package mqtt

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// service has the limits of a cloud service, made from its public documents. They are checked
// before anything is sent, so that an error names the limit. 0: none of its own.
type service struct {
	Name string
	// Topic is the length of a topic or filter in bytes.
	Topic int
	// ClientID and UserName are lengths in bytes, or with Runes in characters.
	ClientID, UserName int
	Runes              bool
	// Levels is the number of levels of a topic or filter.
	Levels int
	// Filters is the number of filters in one SUBSCRIBE.
	Filters int
	// Size is the largest message, as transport.Message.Size counts it.
	Size int
	// Counted, unless nil, returns the part of a topic that counts for Topic and Levels.
	Counted func(topic string) string
}

// dialect returns inner with the limits of s.
func (s *service) dialect(inner dialect.Dialect) dialect.Dialect { return &limited{inner, s} }

type limited struct {
	inner  dialect.Dialect
	limits *service
}

// Session checks what CONNECT says, the filters and the handshake.
func (l *limited) Session(c *dialect.Config) (dialect.Session, dialect.Hello, error) {
	inner, hello, err := l.inner.Session(c)
	if err != nil {
		return nil, hello, err
	}
	s := &limitedSession{inner, l.limits}
	if err := s.check(&hello); err != nil {
		return nil, hello, &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeConnection, Op: transport.OpDial,
			Proto: "mqtt", Err: err}
	}
	return s, hello, nil
}

// Lacks says what the dialect within does not have.
func (l *limited) Lacks(feature transport.Features) string {
	if inner, ok := l.inner.(interface {
		Lacks(feature transport.Features) string
	}); ok {
		return inner.Lacks(feature)
	}
	return ""
}

// limitedSession is a session with limits.
type limitedSession struct {
	dialect.Session
	limits *service
}

func (s *limitedSession) check(h *dialect.Hello) error {
	service := s.limits
	if err := service.name("the client id", h.ClientID, service.ClientID); err != nil {
		return err
	}
	if err := service.name("the user name", h.UserName, service.UserName); err != nil {
		return err
	}
	if service.Size > 0 && h.MaxSize > service.Size {
		h.MaxSize = service.Size
	}
	if h.Will.Msg != nil {
		if err := s.publication(h.Will); err != nil {
			return errors.New("options: Will: " + err.Error())
		}
	}
	filters := s.Filters(transport.FeatureMessages)
	if shake, ok := s.Handshake().(*dialect.Handshake); ok {
		if shake.Message.Msg != nil {
			if err := s.publication(shake.Message); err != nil {
				return errors.New("the handshake's message: " + err.Error())
			}
		}
		filters = append(filters[:len(filters):len(filters)], shake.Filters...)
	}
	if service.Filters > 0 && len(filters) > service.Filters {
		return errors.New("there are " + strconv.Itoa(len(filters)) + " filters to subscribe to, and " + service.Name +
			" takes " + strconv.Itoa(service.Filters) + " at once; use wildcards")
	}
	for _, f := range filters {
		if err := service.topic("filter "+strconv.Quote(f.Topic), f.Topic); err != nil {
			return err
		}
	}
	return nil
}

// Handshake is that of the dialect within.
func (s *limitedSession) Handshake() dialect.Plan {
	if inner, ok := s.Session.(dialect.Handshaker); ok {
		return inner.Handshake()
	}
	return nil
}

// Publication refuses messages on topics that the service does not have.
func (s *limitedSession) Publication(m *transport.Message) (dialect.Publication, *transport.Error) {
	p, refused := s.Session.Publication(m)
	if refused != nil {
		return p, refused
	}
	if err := s.publication(p); err != nil {
		return p, &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Proto: "mqtt", Err: err}
	}
	return p, nil
}

func (s *limitedSession) publication(p dialect.Publication) error {
	if p.Suffix == 0 {
		return s.limits.topic("the topic", p.Topic)
	}
	return s.limits.topic("the topic", string(s.AppendSuffix([]byte(p.Topic), p.Msg)))
}

func (s *service) topic(what, topic string) error {
	if s.Counted != nil {
		topic = s.Counted(topic)
	}
	if err := s.limit(what, len(topic), s.Topic, "bytes"); err != nil {
		return err
	}
	return s.limit(what, strings.Count(topic, "/")+1, s.Levels, "levels")
}

func (s *service) name(what, text string, limit int) error {
	if s.Runes {
		return s.limit(what, utf8.RuneCountInString(text), limit, "characters")
	}
	return s.limit(what, len(text), limit, "bytes")
}

func (s *service) limit(what string, n, limit int, unit string) error {
	if limit == 0 || n <= limit {
		return nil
	}
	return errors.New(what + " has " + strconv.Itoa(n) + " " + unit + ", and " + s.Name + " takes " +
		strconv.Itoa(limit) + "; shorten it")
}
