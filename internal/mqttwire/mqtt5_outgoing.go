package mqttwire

import "strings"

// ConnectSize5 returns the size of the packet that AppendConnect5 appends.
func ConnectSize5(g *Greeting) int {
	n := g.body(level5)
	return HeaderSize(n) + n
}

// AppendConnect5 appends a CONNECT. With an error, dst is returned unchanged.
func AppendConnect5(dst []byte, g *Greeting) ([]byte, error) {
	if !ValidText(g.ClientID) || !ValidText(g.UserName) {
		return dst, ErrString
	}
	if err := check(Connect, g.Properties); err != nil {
		return dst, err
	}
	if g.Will != nil {
		if err := check(will, g.Will.Properties); err != nil {
			return dst, err
		}
	}
	return appendConnect(dst, g, level5)
}

// BlockSize returns the size of n bytes of properties with their length in front.
func BlockSize(n int) int { return HeaderSize(n) - 1 + n }

// AppendBlock appends properties with their length in front.
func AppendBlock(dst, properties []byte) []byte {
	return append(appendVarint(dst, len(properties)), properties...)
}

// Options are the subscription options of SUBSCRIBE beside the QoS, section 3.8.3.1.
type Options struct {
	// NoLocal keeps the client's own messages away. It is left out for shared subscriptions, which
	// must not have it: [MQTT-3.8.3-4].
	NoLocal bool
	// RetainHandling: 0 sends retained messages with each subscription, 1 with new ones, 2 never.
	RetainHandling byte
}

func (o Options) of(f *Filter) byte {
	bits := f.QoS | o.RetainHandling<<4
	if o.NoLocal && !strings.HasPrefix(f.Topic, "$share/") {
		bits |= 1 << 2
	}
	return bits
}

// AppendSubscribe5 appends a SUBSCRIBE without properties for one or more filters, section 3.8.
// With an error, dst is returned unchanged.
func AppendSubscribe5(dst []byte, id uint16, o Options, filters ...Filter) ([]byte, error) {
	if o.RetainHandling > 2 {
		return dst, ErrRange
	}
	for i := range filters {
		if f := &filters[i]; f.Topic == "" || !ValidText(f.Topic) {
			return dst, ErrString
		}
	}
	dst, err := subscribeHead(dst, id, 1, filters)
	if err != nil {
		return dst, err
	}
	dst = append(dst, 0) // no properties
	for i := range filters {
		dst = append(appendField(dst, filters[i].Topic), o.of(&filters[i]))
	}
	return dst, nil
}

// AppendReason appends a DISCONNECT or AUTH, sections 3.14 and 3.15. With an error, dst is returned
// unchanged.
func AppendReason(dst []byte, t Type, reason byte, properties []byte) ([]byte, error) {
	if err := check(t, properties); err != nil {
		return dst, err
	}
	if reason == 0 && len(properties) == 0 {
		return AppendHeader(dst, t, 0, 0), nil
	}
	dst = append(AppendHeader(dst, t, 0, 1+BlockSize(len(properties))), reason)
	return AppendBlock(dst, properties), nil
}
