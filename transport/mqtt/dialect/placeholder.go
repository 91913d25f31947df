package dialect

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// ids fills placeholders in with the ids of credentials. Its errors name the field.
type ids struct{ device, module string }

// text returns the text of a field with its placeholders filled in, which must have 65535 bytes at
// most. It is not empty if template is not.
func (i ids) text(field, template string) (string, error) {
	out, problem := texts.FillIDs(template, i.device, i.module)
	if problem != "" {
		return "", i.wrong(field, template, problem)
	}
	switch {
	case !utf8.ValidString(out):
		return "", i.wrong(field, template, "is not valid UTF-8")
	case !texts.Plain(out):
		return "", i.wrong(field, template, "has a control character or a noncharacter, for which brokers close the "+
			"connection; leave it out")
	case len(out) > mqttwire.MaxText:
		return "", mqttwire.Invalid("topics: " + field + " has " + strconv.Itoa(len(out)) + " bytes; give 65535 at most")
	}
	return out, nil
}

// topic returns the topic to publish to that a field says.
func (i ids) topic(field, template string) (string, error) {
	if err := i.usable(field, template); err != nil {
		return "", err
	}
	out, err := i.text(field, template)
	if err == nil && !mqttwire.ValidTopic([]byte(out)) {
		err = i.wrong(field, template, "is no topic to publish to; give one without '+' and '#'")
	}
	return out, err
}

// filter returns the topic filter that a field says.
func (i ids) filter(field, template string) (string, error) {
	if err := i.usable(field, template); err != nil {
		return "", err
	}
	out, err := i.text(field, template)
	if err != nil {
		return "", err
	}
	switch bare, ok := unshared(out); {
	case !ok:
		return "", i.wrong(field, template, "is no shared subscription; write $share/NAME/FILTER")
	case !validFilter(bare):
		return "", i.wrong(field, template, "is no topic filter; '+' and '#' are whole levels, and '#' is the last one")
	}
	return out, nil
}

// usable returns an error if an id that the template uses would change what a topic means.
func (i ids) usable(field, template string) error {
	for _, id := range [...]struct{ placeholder, name, value string }{
		{"{device}", "DeviceID", i.device}, {"{module}", "ModuleID", i.module},
	} {
		if strings.Contains(template, id.placeholder) && strings.ContainsAny(id.value, "/+#\x00") {
			return mqttwire.Invalid("credentials: " + id.name + " " + texts.Quote(id.value) + " cannot stand in topics." +
				field + " for " + id.placeholder + ": '/', '+' and '#' change the meaning of a topic; choose another id, or " +
				"write the topic without the placeholder")
		}
	}
	return nil
}

func (i ids) wrong(field, template, why string) *transport.Error {
	return mqttwire.Invalid("topics: " + field + " " + texts.Quote(template) + " " + why)
}
