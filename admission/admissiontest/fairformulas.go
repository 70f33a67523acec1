package admissiontest

import "math"

// FairUnit is the distance by which a cost of 1 moves the tag of a flow of weight 1; fair.UNIT of lua/lib/fair.lua.
const FairUnit = 65536

// FairLevels are the factors of the levels high, normal and low for the weights of their tenants.
var FairLevels = [3]int64{16, 4, 1}

// FairCharge returns the distance by which a cost moves the tag of a flow whose weight is in thousandths; fair.charge of the scripts.
// It rounds up, by at most one part in FairUnit·1000/weight.
func FairCharge(cost int64, weight float64) int64 {
	return int64(math.Ceil(float64(cost*FairUnit*1000) / weight))
}

// FairBoost returns the factor for the weight of a group among its tenant's groups: 1 while at most half of its jobs are done, then
// rising evenly to 2 at the end; fair.boost of the scripts.
func FairBoost(total, done int64) float64 {
	if total <= 0 || done*2 <= total {
		return 1
	}
	return min(2, float64(2*done)/float64(total))
}

// ScorePriority returns the priority of a group under the score policy, in milliseconds; the largest goes first; fair.score of the scripts:
//
//	−nowMillis + base + alpha · (−1 + total/max(1, total − done))
//
// rounded down. alpha > 0 (10,000 unless configured) prefers groups that are nearly done, alpha < 0 shares evenly, 0 goes by age.
// base is the group's base_priority: +1,000,000 (nearly 17 minutes of age) for premium, −1,000,000 for low.
func ScorePriority(nowMillis, base, alpha, total, done int64) int64 {
	nearly := -1 + float64(total)/float64(max(1, total-done))
	// The conversion keeps the product from being fused into what follows, which the scripts do not do.
	return -nowMillis + base + int64(math.Floor(float64(float64(alpha)*nearly)))
}
