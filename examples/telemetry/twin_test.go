package main

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/twin"
)

// A new interval applies from its arrival on; the number of readings until then does not change.
func TestTheRateFollowsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSampler(4)
		p.begin()
		set := func(value string) twin.Answer {
			return p.apply(twin.Property{Name: "interval", Value: json.RawMessage(value), Version: 7})
		}
		require.Equal(t, 1, p.count())
		time.Sleep(time.Second)
		require.Equal(t, 5, p.count())
		require.Equal(t, twin.Answer{Status: twin.StatusOK, Value: 0.5}, set("0.5"))
		require.Equal(t, 5, p.count())
		time.Sleep(time.Second)
		require.Equal(t, 7, p.count())
		for _, bad := range []string{"0", "-1", "3601", `"fast"`, "{}"} {
			answer := set(bad)
			require.Equal(t, twin.StatusBadValue, answer.Status, bad)
			require.Equal(t, 0.5, answer.Value, "it goes on as before")
			require.NotEmpty(t, answer.Description)
		}
		time.Sleep(time.Second)
		require.Equal(t, 9, p.count())
		require.Equal(t, twin.Answer{Status: twin.StatusInitial, Value: 0.25, Description: "the usual one"}, set("null"))
		time.Sleep(time.Second)
		require.Equal(t, 13, p.count())
	})
}

// A full document replaces all desired properties: an interval that was removed while the device
// was disconnected returns to the default, in its behaviour and in its reported properties.
func TestTheIntervalIsForgottenWhenItIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSampler(4)
		p.begin()
		tell := func(full bool, version int64, text string) string {
			patch, err := p.answer(device.Desired{Full: full, Version: version, JSON: []byte(text)}, newPrinter())
			require.NoError(t, err)
			if patch.Empty() {
				return ""
			}
			body, err := patch.JSON()
			require.NoError(t, err)
			return string(body)
		}
		require.JSONEq(t, `{"interval":{"value":0.25,"ac":203,"av":1,"ad":"the usual one"}}`, tell(true, 1, `{"$version":1}`))
		require.JSONEq(t, `{"interval":{"value":2,"ac":200,"av":2,"ad":""}}`, tell(false, 2, `{"interval":2,"$version":2}`))
		require.Empty(t, tell(false, 3, `{"colour":"red","$version":3}`), "a patch without it changes nothing")
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, p.count())
		require.JSONEq(t, `{"interval":{"value":0.25,"ac":203,"av":5,"ad":"the usual one"}}`,
			tell(true, 5, `{"colour":"red","$version":5}`))
		time.Sleep(2 * time.Second)
		require.Equal(t, 10, p.count())
	})
}
