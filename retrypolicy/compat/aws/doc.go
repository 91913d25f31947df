// Package aws has the retry modes of the AWS SDKs. A function named after an SDK returns its
// published settings; [New] makes a policy from them. [Standard2026] is the mode that the SDKs
// share since 2026.
//
//	policy, err := aws.New(aws.Standard2026())
//
// [Rules] list the answers of AWS services that are retried; [Classifier] makes a
// retrypolicy.Classifier from them.
package aws
