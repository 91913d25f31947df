package transport_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

var someTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestSizeCountsWhatTheHubCounts(t *testing.T) {
	for _, c := range []struct {
		name string
		m    transport.Message
		want int
	}{
		{"nothing", transport.Message{}, 0},
		{"body", transport.Message{Body: make([]byte, 1000)}, 1000},
		{"id", transport.Message{ID: "m-1"}, 3},
		{"correlation id", transport.Message{CorrelationID: "c-12"}, 4},
		{"content type", transport.Message{ContentType: "application/json"}, 16},
		{"content encoding", transport.Message{ContentEncoding: "utf-8"}, 5},
		{"component", transport.Message{Component: "thermostat1"}, 11},
		{"creation time", transport.Message{Created: someTime}, 24},
		{"expiry time", transport.Message{Expires: someTime}, 24},
		{"properties by name and value", transport.Message{Properties: []transport.Property{{"level", "high"}, {"n", ""}}},
			10},
		{"bytes, not letters", transport.Message{ID: "é"}, 2},
		{"everything", transport.Message{
			ID: "m-1", CorrelationID: "c-12", ContentType: "application/json", ContentEncoding: "utf-8",
			Component: "thermostat1", Created: someTime, Expires: someTime,
			Properties: []transport.Property{{"level", "high"}}, Body: []byte("{}"),
		}, 3 + 4 + 16 + 5 + 11 + 24 + 24 + 9 + 2},
		{"response topic", transport.Message{ResponseTopic: "a/b", Topic: "not counted", Retain: true, AtMostOnce: true}, 3},
	} {
		if got := c.m.Size(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestMessageAtTheLimitIsTakenAndOneByteMoreIsNot(t *testing.T) {
	const limit = 262_144 // 256 KB
	if transport.MaxMessageSize != limit {
		t.Errorf("MaxMessageSize = %d, want %d", transport.MaxMessageSize, limit)
	}
	rest := transport.Message{ID: "m-1", Created: someTime, Properties: []transport.Property{{"level", "high"}}}
	for _, c := range []struct {
		name string
		m    transport.Message
		room int
	}{
		{"body alone", transport.Message{}, limit},
		{"body and the rest", rest, limit - 3 - 24 - 9},
		{"property value", transport.Message{Properties: []transport.Property{{"p", strings.Repeat("v", limit-1)}}}, 0},
	} {
		m := c.m
		m.Body = make([]byte, c.room)
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %d bytes: %v", c.name, m.Size(), err)
		}
		m.Body = make([]byte, c.room+1)
		err := m.Validate()
		want := "message of 262145 bytes is over the limit of 262144; split it or upload it as a file"
		if c.room == 0 {
			want = "message of 262145 bytes, 262144 of them in properties, is over the limit of 262144; send fewer or shorter " +
				"properties"
		}
		checkMessageError(t, c.name, err, transport.TooLarge, want)
	}
}

func numberedProperties(n int) []transport.Property {
	all := make([]transport.Property, n)
	for i := range all {
		all[i].Name = "p" + strconv.Itoa(i)
	}
	return all
}

// Brokers close the connection for these, and would for each repetition of the message.
func TestTextsThatBrokersRefuseAreRefusedBeforeTheQueue(t *testing.T) {
	for _, r := range "\x00\x01\x1f\x7f\u0080\u009f\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0010ffff" {
		text := "a" + string(r) + "b"
		for field, m := range map[string]transport.Message{
			"ID": {ID: text}, "ContentType": {ContentType: text}, "ContentEncoding": {ContentEncoding: text},
			"Component": {Component: text}, "Topic": {Topic: text}, "ResponseTopic": {ResponseTopic: text},
			"Output": {Output: text}, "System.UserID": {System: &transport.SystemProperties{UserID: text}},
			"property name": {Properties: []transport.Property{{text, ""}}},
		} {
			checkMessageError(t, field, m.Validate(), transport.Invalid, "message "+field)
			checkMessageError(t, field, m.Validate(), transport.Invalid, "has a control character or a noncharacter")
		}
		for _, m := range []transport.Message{ // a hub's protocols carry them in any characters
			{CorrelationID: text}, {Properties: []transport.Property{{"name", text}}},
		} {
			if err := m.Validate(); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
	for _, text := range []string{"a b", "~", "\u00a0", "\ufdcf", "\ufdf0", "\ufffd", "\U00010000", "\U0010fffd"} {
		m := transport.Message{ID: text, Topic: text, Component: text}
		if err := m.Validate(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// reservedNames are the names that hubs set themselves or read as system properties.
var reservedNames = []string{
	"absolute-expiry-time", "connectionDeviceId", "connectionModuleId", "content-encoding", "content-type",
	"correlation-id", "creation-time",
	"group-id", "group-sequence", "message-id", "mqtt-dup", "mqtt-retain", "reply-to", "reply-to-group-id", "subject",
	"to",
	"user-id",
	"dt-dataschema", "dt-subject",
	"iothub-", "iothub-ack", "iothub-operation", "iothub-enqueuedtime", "iothub-connection-device-id",
	"iothub-connection-auth-method",
	"iothub-connection-auth-generation-id", "iothub-connection-module-id", "iothub-creation-time-utc",
	"iothub-interface-id",
	"iothub-message-schema", "iothub-message-source", "iothub-outputname",
	"$", "$.mid", "$.ct", "$anything",
}

func TestReservedPropertyNamesAreRefusedInAnyCase(t *testing.T) {
	for _, name := range reservedNames {
		for _, n := range []string{name, strings.ToUpper(name), strings.ToLower(name), strings.ToUpper(name[:1]) + name[1:]} {
			m := transport.Message{Properties: []transport.Property{{"fine", "1"}, {n, "2"}}}
			checkMessageError(t, n, m.Validate(), transport.Invalid, `message property name "`+n+`" is reserved`)
		}
	}
	for _, name := range []string{
		"t", "too", "tow", "x-to", "iothub", "iothubx-ack", "xiothub-ack", "message", "message-id2", "my-message-id",
		"subjects", "a$", "dt-", "level", " to", "é",
	} {
		m := transport.Message{Properties: []transport.Property{{name, ""}}}
		if err := m.Validate(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestMessageValidateNamesTheField(t *testing.T) {
	const bad = "a\xffb"
	long := strings.Repeat("x", transport.MaxIDLength)
	if transport.MaxIDLength != 128 {
		t.Errorf("MaxIDLength = %d", transport.MaxIDLength)
	}
	for _, c := range []struct {
		name string
		m    transport.Message
		want string // empty: valid
	}{
		{"empty message", transport.Message{}, ""},
		{"binary body", transport.Message{Body: []byte(bad)}, ""},
		{"all fields", transport.Message{
			ID: long, CorrelationID: long, ContentType: long + "+", ContentEncoding: long + "+", Component: long + "+",
			Created: someTime, Expires: someTime,
			Properties: []transport.Property{{long + "+", "välue"}, {"lines", "1\n2"}, {"line", "\ufffd"}},
		}, ""},
		{"topics", transport.Message{Topic: "/a//b/$c ä", ResponseTopic: strings.Repeat("x", 65535), Retain: true,
			AtMostOnce: true}, ""},
		{"topic with +", transport.Message{Topic: "a/+/b"}, "message Topic is not a topic to publish to"},
		{"topic with #", transport.Message{Topic: "a/#"}, "message Topic is not a topic to publish to"},
		{"long topic", transport.Message{Topic: strings.Repeat("x", 65536)}, "message Topic is not a topic to publish to"},
		{"topic", transport.Message{Topic: bad}, "message Topic is not valid UTF-8"},
		{"response topic", transport.Message{ResponseTopic: bad}, "message ResponseTopic is not valid UTF-8"},
		{"response topic with #", transport.Message{ResponseTopic: "#"}, "message ResponseTopic is not a topic to publish"},
		{"long id", transport.Message{ID: long + "x"}, "message ID is longer than 128 bytes"},
		{"long correlation id", transport.Message{CorrelationID: long + "x"},
			"message CorrelationID is longer than 128 bytes"},
		{"id", transport.Message{ID: bad}, "message ID is not valid UTF-8"},
		{"correlation id", transport.Message{CorrelationID: bad}, "message CorrelationID is not valid UTF-8"},
		{"content type", transport.Message{ContentType: bad}, "message ContentType is not valid UTF-8"},
		{"content encoding", transport.Message{ContentEncoding: bad}, "message ContentEncoding is not valid UTF-8"},
		{"component", transport.Message{Component: bad}, "message Component is not valid UTF-8"},
		{"empty name", transport.Message{Properties: []transport.Property{{"a", "b"}, {"", "v"}}}, "empty name"},
		{"name", transport.Message{Properties: []transport.Property{{bad, "v"}}},
			`message property "a\xffb" is not valid UTF-8`},
		{"value", transport.Message{Properties: []transport.Property{{"n", bad}}}, `message property "n" is not valid UTF-8`},
		{"half a letter", transport.Message{Properties: []transport.Property{{"n", "\xc3"}}},
			`message property "n" is not valid UTF-8`},
		{"a name twice", transport.Message{Properties: []transport.Property{{"a", "1"}, {"b", ""}, {"A", "2"}}},
			`message property "A" is there twice; give each name once, whatever its case`},
		{"surrogate", transport.Message{ID: "\xed\xa0\x80"}, "message ID is not valid UTF-8"},
	} {
		err := c.m.Validate()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		checkMessageError(t, c.name, err, transport.Invalid, c.want)
	}
}

// 129 properties take a map, fewer a table.
func TestANameIsThereOnce(t *testing.T) {
	for _, n := range []int{2, 20, 128, 129, 5000} {
		all := numberedProperties(n)
		if err := (&transport.Message{Properties: all}).Validate(); err != nil {
			t.Errorf("%d names: %v", n, err)
		}
		for _, other := range []int{0, n/2 - 1, n - 2} {
			twice := slices.Clone(all)
			twice[n-1].Name = "P" + strconv.Itoa(other)
			checkMessageError(t, strconv.Itoa(n), (&transport.Message{Properties: twice}).Validate(), transport.Invalid,
				`message property "`+twice[n-1].Name+`" is there twice`)
		}
	}
	// The hash of all is 255, the last place of the table.
	last := []transport.Property{{"p270", ""}, {"p1169", ""}, {"p1611", ""}}
	if err := (&transport.Message{Properties: last}).Validate(); err != nil {
		t.Error(err)
	}
	err := (&transport.Message{Properties: append(last, transport.Property{"P1611", ""})}).Validate()
	checkMessageError(t, "behind the end", err, transport.Invalid, `message property "P1611" is there twice`)
}

func checkMessageError(t *testing.T, name string, err error, kind transport.Kind, text string) {
	t.Helper()
	e := transport.Find(err)
	if e == nil || e.Kind != kind || e.Op != transport.OpSend || e.Scope != transport.ScopeOperation ||
		!strings.Contains(e.Error(), text) {
		t.Errorf("%s: %#v (%v), want %v on send with %q", name, e, err, kind, text)
	}
}
