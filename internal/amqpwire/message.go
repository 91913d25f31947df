package amqpwire

// BatchFormat is the message format of a batch: its body is data sections, each of which holds a
// message.
const BatchFormat uint32 = 0x80013700

// Message is a message [3.2]. Nil sections are absent.
type Message struct {
	Header                *Header
	DeliveryAnnotations   Map
	MessageAnnotations    Map
	Properties            *Properties
	ApplicationProperties Map
	// The body is one of these: data sections, sequence sections, or a value if HasValue is set. The
	// standard requires one; a message without any is accepted because some clients send it.
	Data     [][]byte
	Sequence []List
	Value    any
	HasValue bool
	Footer   Map
}

// Header holds the delivery options of a message [3.2.1].
type Header struct {
	Durable       bool
	Priority      uint8 // default 4
	TTL           Opt[uint32]
	FirstAcquirer bool
	DeliveryCount uint32
}

func (*Header) code() uint64 { return codeHeader }
func (h *Header) fields(f *fieldset) {
	or(f, &h.Durable, false)
	or(f, &h.Priority, 4)
	may(f, &h.TTL) // milliseconds
	or(f, &h.FirstAcquirer, false)
	or(f, &h.DeliveryCount, 0)
}

// Properties are the properties that the standard defines [3.2.4].
type Properties struct {
	MessageID          any // uint64, UUID, []byte or string
	UserID             []byte
	To                 Opt[string]
	Subject            Opt[string]
	ReplyTo            Opt[string]
	CorrelationID      any // as MessageID
	ContentType        Symbol
	ContentEncoding    Symbol
	AbsoluteExpiryTime Opt[Timestamp]
	CreationTime       Opt[Timestamp]
	GroupID            Opt[string]
	GroupSequence      Opt[uint32]
	ReplyToGroupID     Opt[string]
}

func (*Properties) code() uint64 { return codeProperties }
func (p *Properties) fields(f *fieldset) {
	messageID(f, &p.MessageID)
	slice(f, &p.UserID)
	may(f, &p.To) // an address; in practice always a string
	may(f, &p.Subject)
	may(f, &p.ReplyTo)
	messageID(f, &p.CorrelationID)
	or(f, &p.ContentType, "")
	or(f, &p.ContentEncoding, "")
	may(f, &p.AbsoluteExpiryTime)
	may(f, &p.CreationTime)
	may(f, &p.GroupID)
	may(f, &p.GroupSequence)
	may(f, &p.ReplyToGroupID)
}

// Body returns the bytes of the data sections, concatenated.
func (m *Message) Body() []byte {
	if len(m.Data) == 1 {
		return m.Data[0]
	}
	var all []byte
	for _, d := range m.Data {
		all = append(all, d...)
	}
	return all
}

// DecodeMessage reads a message. Sections must be in order, and each but those of the body at most
// once. The message shares no memory with b.
func DecodeMessage(b []byte) (*Message, error) {
	m := new(Message)
	return m, m.decode(newDecoder(b))
}

// DecodeTolerant is DecodeMessage for what brokers send that do not keep to the standard in all: a
// string for a symbol and the other way, keys of other types in annotations, and values of any type
// in application properties.
func DecodeTolerant(b []byte) (*Message, error) {
	d := newDecoder(b)
	d.items, d.tolerant = min(d.items, tolerantItems), true
	m := new(Message)
	return m, m.decode(d)
}

// tolerantItems is how many values a message of a broker may have, at all depths: a value of one
// byte takes 16 bytes or more in memory.
const tolerantItems = 1 << 16

func (m *Message) decode(d decoder) error {
	last := uint64(0)
	for len(d.b) > 0 {
		v, err := d.value(0)
		if err != nil {
			return err
		}
		section, ok := v.(*Described)
		if !ok {
			return malformed("section of a message is a %T", v)
		}
		code, ok := descriptorCode(section.Descriptor)
		if !ok {
			return malformed("section with %s", descriptorText(section.Descriptor))
		}
		if code < codeHeader || code > codeFooter {
			return malformed("section %d of a message", code)
		}
		repeats := code == last && (code == codeData || code == codeSequence)
		second := isBody(code) && isBody(last) && !repeats
		if code <= last && !repeats || second {
			return malformed("section %s behind %s", names[code], names[last])
		}
		last = code
		if err := m.section(code, section, d.tolerant); err != nil {
			return err
		}
	}
	return nil
}

func isBody(code uint64) bool { return code >= codeData && code <= codeValue }

func (m *Message) section(code uint64, d *Described, tolerant bool) error {
	switch code {
	case codeHeader, codeProperties:
		c, err := undescribe(d, sections, tolerant)
		if err != nil {
			return err
		}
		switch c := c.(type) {
		case *Header:
			m.Header = c
		case *Properties:
			m.Properties = c
		}
		return nil
	case codeValue:
		m.Value, m.HasValue = d.Value, true
		return nil
	}
	ok := false
	switch v := d.Value.(type) {
	case []byte:
		if ok = code == codeData; ok {
			m.Data = append(m.Data, v)
		}
	case List:
		if ok = code == codeSequence; ok {
			m.Sequence = append(m.Sequence, v)
		}
	case Map:
		if v == nil {
			v = Map{}
		}
		ok = code != codeData && code != codeSequence
		switch code {
		case codeDeliveryAnnotations:
			m.DeliveryAnnotations = v
		case codeMessageAnnotations:
			m.MessageAnnotations = v
		case codeApplicationProperties:
			m.ApplicationProperties = v
			return checkProperties(v, tolerant)
		case codeFooter:
			m.Footer = v
		}
		if ok && !tolerant {
			return checkAnnotations(code, v)
		}
	}
	if !ok {
		return malformed("%s is a %T", names[code], d.Value)
	}
	return nil
}

// checkProperties checks that keys are strings and, unless tolerant, values simple.
func checkProperties(m Map, tolerant bool) error {
	for i, p := range m {
		if key, ok := p.Key.(Symbol); ok && tolerant {
			m[i].Key = string(key)
		} else if _, ok := p.Key.(string); !ok {
			return malformed("application property with a key that is a %T", p.Key)
		}
		if tolerant {
			continue
		}
		switch p.Value.(type) {
		case List, Map, Array, *Described:
			return malformed("application property %.64q is a %T", p.Key, p.Value)
		}
	}
	return nil
}

// checkAnnotations checks that keys are symbols or numbers.
func checkAnnotations(code uint64, m Map) error {
	for _, p := range m {
		switch p.Key.(type) {
		case Symbol, uint64:
		default:
			return malformed("%s with a key that is a %T", names[code], p.Key)
		}
	}
	return nil
}

// AppendMessage appends a message. It fails as [Append] does.
func AppendMessage(dst []byte, m *Message) ([]byte, error) {
	var err error
	add := func(code uint64, v any) {
		if err == nil {
			dst, err = appendDescribed(dst, code, v, 0)
		}
	}
	if m.Header != nil {
		add(codeHeader, listOf(m.Header))
	}
	if m.DeliveryAnnotations != nil {
		add(codeDeliveryAnnotations, m.DeliveryAnnotations)
	}
	if m.MessageAnnotations != nil {
		add(codeMessageAnnotations, m.MessageAnnotations)
	}
	if m.Properties != nil {
		add(codeProperties, listOf(m.Properties))
	}
	if m.ApplicationProperties != nil {
		add(codeApplicationProperties, m.ApplicationProperties)
	}
	for _, d := range m.Data {
		add(codeData, d)
	}
	for _, l := range m.Sequence {
		add(codeSequence, l)
	}
	if m.HasValue {
		add(codeValue, m.Value)
	}
	if m.Footer != nil {
		add(codeFooter, m.Footer)
	}
	return dst, err
}

var sections = map[uint64]func() composite{
	codeHeader: func() composite { return new(Header) }, codeProperties: func() composite { return new(Properties) },
}
