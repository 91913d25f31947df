package updates

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
)

// The texts of a kind that says what is wrong are documented in package fault, and done here.
func TestEachWrongTextHasAnEffect(t *testing.T) {
	for kind, done := range map[fault.Kind][]string{
		fault.WrongOffer:    slices.Collect(maps.Keys(wrongOffers)),
		fault.WrongFile:     slices.Collect(maps.Keys(wrongFiles)),
		fault.WrongRootKeys: slices.Collect(maps.Keys(wrongRootKeys)),
	} {
		require.ElementsMatch(t, fault.Wrongs(kind), done, kind)
	}
	require.Nil(t, fault.Wrongs(fault.SlowFile))
}
