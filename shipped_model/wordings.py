"""How a person asks for the 41 clauses of CUAD; the names of the clauses are CUAD's, the questions ours."""

WORDINGS = {
    "Document Name": (
        "What is the title of this contract?",
        "What kind of agreement is this?",
        "What is this document called?",
    ),
    "Parties": ("Who are the parties?", "Who signed this contract?", "Between whom is this agreement made?"),
    "Agreement Date": (
        "When was this agreement signed?",
        "What is the date of the contract?",
        "On what date was the agreement made?",
    ),
    "Effective Date": (
        "When does the agreement take effect?",
        "From what date is the contract effective?",
        "When does it start?",
    ),
    "Governing Law": (
        "Which law governs this agreement?",
        "Which state's law applies to the contract?",
        "What is the governing law?",
    ),
    "Third Party Beneficiary": (
        "Does anyone else benefit from this contract?",
        "Is there a third party beneficiary?",
        "Who besides the parties can enforce the agreement?",
    ),
    "Expiration Date": (
        "When does the agreement end?",
        "When does the contract expire?",
        "How long is the term?",
        "When does it end?",
    ),
    "Renewal Term": (
        "Does the contract renew automatically?",
        "What is the renewal term?",
        "For how long is the agreement renewed?",
    ),
    "Notice Period To Terminate Renewal": (
        "How much notice is needed to stop the renewal?",
        "When must notice of non-renewal be given?",
        "How many days before the end must a party give notice not to renew?",
    ),
    "Termination For Convenience": (
        "Can a party terminate without cause?",
        "Can I end this contract at any time?",
        "Who may terminate the agreement for convenience?",
    ),
    "Post-Termination Services": (
        "What must the parties do after termination?",
        "What happens after the contract ends?",
        "Which duties continue after the end of the agreement?",
    ),
    "Anti-Assignment": (
        "Can the contract be assigned to someone else?",
        "Is consent needed for an assignment?",
        "May a party transfer its rights?",
    ),
    "Change Of Control": (
        "What happens if a party is sold?",
        "What happens on a change of control?",
        "Can a party terminate if the other one is acquired?",
    ),
    "Rofr/Rofo/Rofn": (
        "Is there a right of first refusal?",
        "Who has a right of first offer or negotiation?",
        "Must an offer be made to the other party first?",
    ),
    "Exclusivity": ("Is the agreement exclusive?", "Who has exclusive rights?", "May the parties deal with others?"),
    "Non-Compete": (
        "Is there a non-compete?",
        "May a party compete with the other?",
        "What restricts the parties from competing?",
    ),
    "Competitive Restriction Exception": (
        "What are the exceptions to exclusivity or the non-compete?",
        "When is a party allowed to compete?",
        "Which competing business is permitted?",
    ),
    "No-Solicit Of Customers": (
        "May a party solicit the other's customers?",
        "Is there a ban on poaching customers?",
        "Who may not contact the customers?",
    ),
    "No-Solicit Of Employees": (
        "May a party hire the other's employees?",
        "Is there a ban on poaching staff?",
        "For how long may employees not be solicited?",
    ),
    "Non-Disparagement": (
        "May a party speak badly of the other?",
        "Is there a non-disparagement clause?",
        "What must the parties not say about each other?",
    ),
    "Most Favored Nation": (
        "Is there a most favored customer clause?",
        "Must we get the best price offered to anyone?",
        "Are better terms given to others due to us too?",
    ),
    "Revenue/Profit Sharing": (
        "How are revenues shared?",
        "What share of the profit is paid?",
        "How much is the royalty or commission?",
    ),
    "Price Restrictions": ("May prices be raised?", "How may prices change?", "Is there a limit on price increases?"),
    "Minimum Commitment": (
        "What is the minimum purchase?",
        "How much must be ordered at least?",
        "Is there a minimum commitment?",
    ),
    "Volume Restriction": (
        "Is there a maximum volume?",
        "What happens above a certain quantity?",
        "How much use is allowed?",
    ),
    "Audit Rights": (
        "Who may audit the books?",
        "Is there a right to inspect records?",
        "How often may an audit take place?",
    ),
    "Ip Ownership Assignment": (
        "Who owns the intellectual property that is created?",
        "Is intellectual property assigned to a party?",
        "Who will own the work product?",
    ),
    "Joint Ip Ownership": (
        "Is any intellectual property owned jointly?",
        "What do the parties own together?",
        "Who owns jointly developed inventions?",
    ),
    "License Grant": (
        "What license is granted?",
        "What rights of use does a party get?",
        "Which licence is given under this agreement?",
    ),
    "Non-Transferable License": (
        "Is the license transferable?",
        "May the licence be passed on?",
        "Is the licence limited to the licensee?",
    ),
    "Affiliate License-Licensor": (
        "Does the license cover property of the licensor's affiliates?",
        "Do the licensor's affiliates grant rights too?",
        "Are affiliates of the licensor bound by the licence?",
    ),
    "Affiliate License-Licensee": (
        "May affiliates of the licensee use the license?",
        "Does the licence extend to the licensee's affiliates?",
        "Can the licensee sublicense to its affiliates?",
    ),
    "Unlimited/All-You-Can-Eat-License": (
        "Is there an unlimited license?",
        "Is use without limit allowed?",
        "Is it an enterprise-wide licence?",
    ),
    "Irrevocable Or Perpetual License": (
        "Is the license perpetual or irrevocable?",
        "Does the licence ever end?",
        "Can the licence be revoked?",
    ),
    "Source Code Escrow": (
        "Is source code put in escrow?",
        "When is the source code released?",
        "Who holds the source code?",
    ),
    "Cap On Liability": ("Is liability capped?", "What is the maximum liability?", "How is liability limited?"),
    "Uncapped Liability": (
        "Which liability is unlimited?",
        "When does the cap on liability not apply?",
        "For what is a party liable without limit?",
    ),
    "Liquidated Damages": (
        "Are there liquidated damages?",
        "What must be paid on breach or early termination?",
        "Is there a termination fee?",
    ),
    "Warranty Duration": (
        "How long is the warranty?",
        "What is the warranty period?",
        "For how long are defects repaired?",
    ),
    "Insurance": (
        "What insurance is required?",
        "Must a party carry insurance?",
        "How much coverage must a party maintain?",
    ),
    "Covenant Not To Sue": (
        "May a party challenge the other's intellectual property?",
        "Is there a covenant not to sue?",
        "Which claims may not be brought?",
    ),
}
