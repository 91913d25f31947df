package main

func init() {
	tables["timers"] = []mutation{
		{File: "internal/hubauth/clock.go", Old: "ahead > 0 && !(e.proven && creds.Implausible(own))", New: "false", Test: "./internal/hubauth -run TestNoDateMakesATokenOfASetClockLiveLonger"},
		{File: "internal/hubauth/clock.go", Old: "e.offset > 0 && !(e.proven && new(transport.Credentials).Implausible(now))", New: "false", Test: "./internal/hubauth -run TestNoDateMakesATokenOfASetClockLiveLonger"},
		{File: "internal/hubauth/clock.go", Old: "!date.Before(leaf.NotBefore) && !date.After(leaf.NotAfter)", New: "leaf != nil", Test: "./internal/hubauth -run TestAnUnsetClockTakesTheHubsOnProof"},
		{File: "internal/hubauth/clock.go", Old: "peer == nil || len(peer.VerifiedChains) == 0", New: "peer == nil", Test: "./internal/hubauth -run TestAnUnsetClockTakesTheHubsOnProof"},
		{File: "internal/hubauth/clock.go", Old: "before.proven && !proven", New: "false", Test: "./internal/hubauth -run TestWhatIsProvenIsNotReplacedByWhatIsNot"},
		{File: "device/clock.go", Old: "mono.Sub(k.judged) < clockCheck", New: "false", Test: "./device -run TestAClockThatSwingsDoesNotReconnectAllTheTime"},
		{File: "device/clock.go", Old: "	k.fromWall, k.fromMono = wall, mono\n	if !jumped {", New: "	if !jumped {", Test: "./device -run TestPain21_AConnectionIsReplacedAfterSleep"},
		{File: "device/clock.go", Old: "if !l.c.creds.ClockRefused(l.clock.wall, failure) {", New: "if true {", Test: "./device -run TestARefusedTokenOfAnUnsetClockIsNotFinal"},
		{File: "device/outage.go", Old: "l.c.creds.Sign != nil && l.clockJumped(now) != 0", New: "false", Test: "./device -run TestAClockThatIsSetDuringAnAttempt"},
		{File: "transport/clock.go", Old: " || t.Before(c.Earliest)", New: "", Test: "./device -run TestARefusedTokenOfAnUnsetClockIsNotFinal"},
		{File: "internal/timespan/timespan.go", Old: "return min(d, Most)", New: "return d", Test: "./device -run TestTheLongestRestIsOne"},
		{File: "device/loop.go", Old: "l.evidence().acknowledged > l.flaps.before", New: "true", Test: "./device -run TestAUsefulConnectionBeginsTheCountAnew"},
		{File: "device/loop.go", Old: "up >= usefulTime && ", New: "", Test: "./device -run TestAPeerThatHangsUpAfterAMessageIsNotHammered"},
		{File: "device/loop.go", Old: "up/usefulShare >= l.last.Delay", New: "up >= l.last.Delay", Test: "./device -run TestAUsefulConnectionIsUpForLongerThanItsDelay"},
		{File: "device/loop.go", Old: "case l.useful(failure):", New: "case false:", Test: "./internal/sim -run TestALinkThatFlapsAndMakesProgressIsNotPunished/lean"},
	}
}
