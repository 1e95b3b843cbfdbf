"""What waits for a person: the inbox, one question, used-up budgets, and the page of a signed link.

`inbox` has the pages and their actions; `question_cards` and `budget_cards` what they show;
`answer_page` is the page of a signed link, without a session and without scripts; `answer_form` reads the answers of
both.
"""
