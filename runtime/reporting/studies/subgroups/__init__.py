"""Study of subgroups: measures by view, sex, age and other attributes of the cases, and the gaps between groups.

subgroup_sources  which table or files a dataset's attributes are from
grouping          attributes -> groups of cases, and which groups are compared
measured          a finished cell -> its measures by group and its gaps, as rows
subgroup_tables   rows -> tables
subgroups_study   all of it
"""
