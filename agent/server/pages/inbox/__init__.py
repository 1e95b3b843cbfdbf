"""The inbox: questions to people, used-up budgets, and the page of a signed link.

`inbox` has the pages and their actions; `question_cards` and `budget_cards` their content;
`answer_page` is the page of a signed link, without a session and without scripts; `answer_form` reads the answers of
both.
"""
