package backend

import (
	"reflect"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
)

// A content that is accepted gives a valid twin, and the same one when it is written again.
func FuzzParseContent(f *testing.F) {
	f.Add(`{"deviceContent":{"properties.desired.a":1,"properties.desired.a.b":{"c":null,"d":[1]}}}`)
	f.Add(`{"modulesContent":{"$edgeAgent":{"properties.desired":{"x":1}}}}`)
	f.Add(`{"moduleContent":{"properties.desired.x.y.z":null}}`)
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := document.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := ParseContent(raw)
		if err != nil {
			return
		}
		once := written(document.Tree{"a": "before", "kept": document.Tree{"b": true}}, c.Device)
		if again := written(once, c.Device); !reflect.DeepEqual(once, again) {
			t.Fatalf("%v, then %v", once, again)
		}
	})
}
