package httpfront_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/httpfront"
)

// FuzzBatch checks that an accepted batch has the same meaning when parsed by other means.
func FuzzBatch(f *testing.F) {
	for _, s := range []string{
		`[{"body":"eA=="}]`, `[{"body":"x","base64Encoded":false,"properties":{"iothub-app-a":"b"}}]`, `[]`, `null`, `[{}]`,
		`[null]`, `{`,
		`[{"body":"eA==","properties":{"iothub-messageid":"1","iothub-to":"/x"}}]`, "[{\"body\":\"\xff\"}]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		all, code := httpfront.ReadBatch(text)
		if code != 0 {
			require.Empty(t, all)
			require.Contains(t, []int{400004, 400006, 400012, 400026, 413001}, code)
			return
		}
		var want []map[string]any
		require.NoError(t, json.Unmarshal(text, &want))
		require.Len(t, all, len(want))
		total := 0
		for _, m := range all {
			require.Equal(t, hubdata.HTTP, m.Protocol)
			total += len(m.Body)
			for _, p := range m.Properties {
				require.NotEmpty(t, p.Name)
				require.NotContains(t, p.Name, " ")
			}
		}
		require.LessOrEqual(t, total, hubdata.MaxMessage)
	})
}

func FuzzBatchBodies(f *testing.F) {
	f.Add([]byte("x"), "level", "high")
	f.Add([]byte{0, 255}, "a", "€")
	f.Fuzz(func(t *testing.T, body []byte, name, value string) {
		text, err := json.Marshal([]any{map[string]any{
			"body": base64.StdEncoding.EncodeToString(body), "properties": map[string]string{"iothub-app-" + name: value},
		}})
		require.NoError(t, err)
		all, code := httpfront.ReadBatch(text)
		if code != 0 {
			return
		}
		require.Equal(t, string(body), string(all[0].Body))
		require.Len(t, all[0].Properties, 1)
		require.Equal(t, name, all[0].Properties[0].Name)
	})
}

func FuzzHeaderProperties(f *testing.F) {
	f.Add("iothub-app-level", "high")
	f.Add("IOTHUB-MESSAGEID", strings.Repeat("m", 200))
	f.Add("dt-subject", "\x00")
	f.Fuzz(func(t *testing.T, name, value string) {
		m, code := httpfront.ReadProperties(map[string]string{name: value})
		if code != 0 {
			return
		}
		require.LessOrEqual(t, len(m.Properties)+len(m.System), 1, fmt.Sprint(m))
		require.LessOrEqual(t, len(m.MessageID), hubdata.MaxMessageID)
	})
}
