// Package classify has what a program needs to judge failures by its own rules: whether to retry,
// whether the operation may be repeated, and how long the service asks to wait.
//
// A classifier is a function from an error to an [Info]. Set it as the field Classify of a
// retrypolicy.Retrier. It returns the zero Info, which is Undecided, for errors that it does not
// know; retrypolicy.Classify judges those.
//
//	notFoundYet := func(err error) classify.Info {
//		if errors.Is(err, transport.NotFound) {
//			return classify.Info{Verdict: classify.VerdictAgain, Kind: transport.NotFound}
//		}
//		return classify.Info{}
//	}
//	r := retrypolicy.Retrier{Policy: policy, Classify: notFoundYet}
//
// [Chain] joins classifiers, [FromKind] makes one from a function that finds the Kind of an error.
// Ready classifiers are in retrypolicy/httpretry, retrypolicy/compat/aws and
// retrypolicy/compat/grpc. Errors of transports and of packages net and net/http need none.
package classify
