"""Study of subgroups: measures by view, sex, age and other attributes of the cases, and the gaps between groups.

sources   which table or files a dataset's attributes are from
grouping  attributes -> groups of cases, and which groups are compared
measured  a finished cell -> its measures by group and its gaps, as rows
tables    rows -> tables
study     all of it
"""
