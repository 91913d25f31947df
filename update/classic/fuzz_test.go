package classic_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/classic"
)

// FuzzTwin gives the Service twins as a hub could send them. What it reports is complete: the same
// Check and the same Report have nothing to send afterwards.
func FuzzTwin(f *testing.F) {
	deployment := offer(`{"action":3,"id":"wf-1","retryTimestamp":"t"}`, "1.1")
	whole := `{"deviceUpdate":{"__t":"c","service":` + deployment + `},"$version":5}`
	f.Add(whole, `{}`)
	f.Add(whole, `{"deviceUpdate":{"agent":{"state":255,"workflow":{"id":"w"},`+
		`"lastInstallResult":{"stepResults":{"step_3":{}}}},"service":{"ac":200}}}`)
	f.Add(`{"deviceUpdate":{"service":{"workflow":{"action":255,"id":"w"}}}}`, `{"deviceUpdate":{"agent":{"state":6}}}`)
	f.Add(`{"deviceUpdate":{"service":{"workflow":{"action":3,"id":"w@"},"fileUrls":{"a":null}}}}`, `{"deviceUpdate":5}`)
	f.Add(`{"deviceUpdate":null}`, `{"deviceUpdate":{"agent":[],"service":{"value":[]}}}`)
	f.Fuzz(func(t *testing.T, desired, reported string) {
		var document map[string]any
		if !jsonscan.IsObject([]byte(reported)) || json.Unmarshal([]byte(reported), &document) != nil {
			return // no hub sends that
		}
		c := &stub{desired: desired, reported: merge(nil, document)}
		s, err := classic.New(c)
		require.NoError(t, err)
		answer, err := s.Check(context.Background(), &query)
		if err == nil && answer.Offer != nil {
			require.NotEmpty(t, answer.Offer.Manifest)
			require.LessOrEqual(t, len(answer.Offer.WorkflowID), agent.MaxWorkflowID)
		}
		sent := c.patches
		_, again := s.Check(context.Background(), &query)
		require.Equal(t, err, again)
		require.Equal(t, sent, c.patches, "Check: %v", c.reported)

		report := agent.Report{WorkflowID: "wf-1", Steps: make([]agent.Result, 2)}
		require.NoError(t, s.Report(context.Background(), &report))
		sent = c.patches
		require.NoError(t, s.Report(context.Background(), &report))
		require.Equal(t, sent, c.patches, "Report: %v", c.reported)
	})
}

// stub is a client with a twin. It merges patches as a hub does.
type stub struct {
	desired  string
	reported any
	patches  int
}

func (c *stub) HandleDesired(device.DesiredHandler) error { return nil }

func (c *stub) GetTwin(context.Context) (*device.Twin, error) {
	text, err := json.Marshal(c.reported)
	return &device.Twin{Desired: []byte(c.desired), Reported: text, DesiredVersion: 5}, err
}

func (c *stub) PatchReported(_ context.Context, patch []byte) (int64, error) {
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return 0, err
	}
	c.patches++
	c.reported = merge(c.reported, changes)
	return int64(c.patches), nil
}

// merge is the algorithm of RFC 7396, section 2.
func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged := map[string]any{}
	if old, ok := target.(map[string]any); ok {
		merged = old
	}
	for name, change := range changes {
		if change == nil {
			delete(merged, name)
		} else {
			merged[name] = merge(merged[name], change)
		}
	}
	return merged
}
