package testbroker_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// BenchmarkQueryOfConnectedDevices reads 1,000 of 10,000 devices that are all connected.
func BenchmarkQueryOfConnectedDevices(b *testing.B) {
	h, _ := newHub(b, nil)
	for i := range 10_000 {
		d, err := h.AddDevice(fmt.Sprint("many-", i))
		require.NoError(b, err)
		login(b, h, d)
	}
	p := backEnd(b, h, hubdata.AllRights)
	for b.Loop() {
		ids, _ := p.twins("SELECT * FROM devices WHERE connectionState = 'Connected'")
		require.Len(b, ids, 1000)
	}
}
